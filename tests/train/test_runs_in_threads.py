"""Runs in several threads of one process: each hears what its own threads say."""

import logging
import threading

from burn_torch.data import DataLoader
from burn_torch.monitor import LogLine, read_events
from burn_torch.train.event import StepDone


class Talker:
    """Waits for the other runs at its first step, then talks."""

    def __init__(self, name, together):
        self.name, self.together, self.spoke = name, together, False

    def handle(self, event):
        if isinstance(event, StepDone) and not self.spoke:
            self.spoke = True
            self.together.wait(20)
            print(f"{self.name} prints")
            logging.getLogger("burn_torch.train").warning("%s warns", self.name)
            self.together.wait(20)

    def close(self):
        pass


def logging_loader(program, name):
    class Batcher(program.Batcher):
        def batch(self, items, device):
            logging.getLogger("burn_torch.train").warning("%s loads", name)
            return super().batch(items, device)

    return DataLoader(program.make_items(16), Batcher(), batch_size=8, num_workers=1)


def test_runs_in_two_threads_do_not_hear_each_other(program, tmp_path, capsys):
    names, results = ("one", "other"), {}
    together = threading.Barrier(2)

    def launch(name):
        training = program.make_training(tmp_path / name, 1).with_loaders(logging_loader(program, name), None)
        training = training.with_event_reader(Talker(name, together))
        results[name] = training.launch(learners[name])

    learners = {name: program.make_learner() for name in names}
    threads = [threading.Thread(target=launch, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [results[name].status for name in names] == ["completed"] * 2
    for name, other in (names, names[::-1]):
        log = (tmp_path / name / "experiment.log").read_text()
        logged = [one.event for one in read_events(tmp_path / name / "events.jsonl")]
        lines = [event.text for event in logged if isinstance(event, LogLine)]
        for text in (f"{name} warns", f"{name} loads"):
            assert text in log
            assert text in lines
        assert f"{name} prints" in lines
        assert "checkpoint epoch-1" in log
        assert log.count("the run begins in") == 1
        assert not any(line.startswith(f"{other} ") for line in lines)
        assert f"{other} " not in log.replace(str(tmp_path), "")
    assert {f"{name} prints" for name in names} <= set(capsys.readouterr().out.splitlines())


def test_what_a_thread_of_no_run_says_is_heard(program, tmp_path):
    class Starter(Talker):
        def handle(self, event):
            if isinstance(event, StepDone) and not self.spoke:
                self.spoke = True
                thread = threading.Thread(target=lambda: logging.getLogger("burn_torch.train").warning("from beside"))
                thread.start()
                thread.join()

    program.make_training(tmp_path / "run", 1).with_event_reader(Starter("", None)).launch(program.make_learner())
    assert "from beside" in (tmp_path / "run/experiment.log").read_text()
