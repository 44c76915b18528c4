"""Ctrl-C and SIGTERM: once finishes the step and saves, twice stops at once."""

import json
import signal
import threading
import time

import pytest

from burn_torch.train import Interrupter
from burn_torch.train.interrupt import stopping_on_signals

CODES = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}


def wait_for_steps(process, count):
    for _ in range(count):
        assert process.stdout.readline() == "step\n"


@pytest.mark.parametrize("number", list(CODES))
def test_one_signal_saves_and_the_resume_has_the_same_bits(program, start, tmp_path, number):
    folder = tmp_path / "run"
    process = start(dir=folder, epochs=2, slow=True)
    wait_for_steps(process, 7)
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    status, code = CODES[number]
    assert process.returncode == code, errors
    assert json.loads(output.splitlines()[-1])["status"] == status
    assert json.loads((folder / "result.json").read_text())["status"] == status
    assert not (folder / "model.safetensors").exists()
    (partial,) = (folder / "checkpoint").glob("epoch-2-batch-*.safetensors")

    whole = program.make_training(tmp_path / "whole", 2).launch(program.make_learner())
    result = program.make_training(folder, 2).resume().launch(program.make_learner())
    assert program.digest(result.model) == program.digest(whole.model)
    assert result.history.to_state() == whole.history.to_state()
    assert not partial.exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_a_second_signal_stops_at_once(start, tmp_path, number, code):
    folder = tmp_path / "run"
    process = start(dir=folder, epochs=50, slow=True)
    wait_for_steps(process, 1)
    process.send_signal(number)
    time.sleep(0.03)  # the step takes 0.1 s; two signals at the same moment would be one
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert "status" not in output
    assert not (folder / "checkpoint").exists()
    assert json.loads((folder / "result.json").read_text())["status"] == "aborted"


def test_second_signal_raises_and_handlers_come_back():
    before = {number: signal.getsignal(number) for number in CODES}
    for number, error in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)):
        interrupter = Interrupter()
        with pytest.raises(error) as caught, stopping_on_signals(interrupter):  # noqa: PT012  # the second one raises
            signal.raise_signal(number)
            assert interrupter.status == CODES[number][0]
            signal.raise_signal(number)
        if error is SystemExit:
            assert caught.value.code == 143
        assert {number: signal.getsignal(number) for number in CODES} == before


def test_a_signal_outranks_a_wish_to_stop():
    interrupter = Interrupter()
    interrupter.stop("later")
    interrupter.stop("no, later")
    assert interrupter.get_message() == "later"
    with stopping_on_signals(interrupter):
        signal.raise_signal(signal.SIGTERM)
    assert (interrupter.get_message(), interrupter.status) == ("SIGTERM", "terminated")
    interrupter.reset()
    assert not interrupter.should_stop()
    assert interrupter.get_message() is None


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupter = Interrupter()
        with stopping_on_signals(interrupter):
            signal.raise_signal(signal.SIGINT)
        assert not interrupter.should_stop()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_in_another_thread_leaves_the_handlers_alone(program, tmp_path):
    before = {number: signal.getsignal(number) for number in CODES}
    seen, results = [], []

    class Looker:
        def handle(self, event):
            seen.append({number: signal.getsignal(number) for number in CODES})

        def close(self):
            pass

    training = program.make_training(tmp_path / "run", 1).renderer(Looker())
    thread = threading.Thread(target=lambda: results.append(training.launch(program.make_learner())))
    thread.start()
    thread.join()
    assert results[0].status == "completed"
    assert all(handlers == before for handlers in seen)


def test_a_signal_is_done_with_when_the_run_is(program, tmp_path):
    training = program.make_training(tmp_path / "run", 1)

    class Raiser:
        def handle(self, event):
            if type(event).__name__ == "StepDone" and not raised:
                raised.append(1)
                signal.raise_signal(signal.SIGINT)

        def close(self):
            pass

    raised = []
    result = training.renderer(Raiser()).launch(program.make_learner())
    assert (result.status, result.message) == ("interrupted", "Ctrl-C")
    assert not training.interrupter().should_stop()
    assert training.resume().launch(program.make_learner()).status == "completed"


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_too_late_to_stop_a_run_stops_no_other_one(program, tmp_path, fails):
    class Raiser:
        def handle(self, event):
            if type(event).__name__ == "EpochDone":
                signal.raise_signal(signal.SIGINT)
                if fails:
                    raise RuntimeError("a reader failed")

        def close(self):
            pass

    training = program.make_training(tmp_path / "run", 1).renderer(Raiser())
    if fails:
        with pytest.raises(RuntimeError, match="a reader failed"):
            training.launch(program.make_learner())
    else:
        assert training.launch(program.make_learner()).status == "completed"
    assert not training.interrupter().should_stop()
