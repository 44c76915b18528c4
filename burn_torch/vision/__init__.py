"""Images: connected parts, morphology, boxes, filters, colours, affine transforms, augmentation, perceptual metrics."""

from burn_torch.core.checking import check_exports as _check_exports
from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.vision.adjusting import *
from burn_torch.vision.afine import *
from burn_torch.vision.augmentation import *
from burn_torch.vision.boxes import *
from burn_torch.vision.color import *
from burn_torch.vision.components import *
from burn_torch.vision.feature_networks import Vgg19 as Vgg19
from burn_torch.vision.filters import *
from burn_torch.vision.frechet import Fid as Fid
from burn_torch.vision.frechet import FidConfig as FidConfig
from burn_torch.vision.gram_matrix import *
from burn_torch.vision.mixing import *
from burn_torch.vision.morphology import *
from burn_torch.vision.perceptual import *
from burn_torch.vision.rand_augment import *
from burn_torch.vision.saving import *
from burn_torch.vision.transform2d import *

_list_exports(globals())
_check_exports(globals(), quick=True)
