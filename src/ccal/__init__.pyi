from ccal import adapters as adapters
from ccal import cca as cca
from ccal import codes as codes
from ccal import data as data
from ccal import encoders as encoders
from ccal import evaluation as evaluation
from ccal import features as features
from ccal import losses as losses
from ccal import music as music
from ccal import reports as reports
from ccal import retrieval as retrieval
from ccal import runs as runs
from ccal import serve as serve
from ccal import training as training
from ccal.bundled import pretrained as pretrained
from ccal.cca import CCA as CCA
from ccal.cca import CCALayer as CCALayer
from ccal.data import Pairs as Pairs
from ccal.errors import CcalError as CcalError
from ccal.errors import InputError as InputError
from ccal.errors import NotFittedError as NotFittedError
from ccal.errors import SmallBatchWarning as SmallBatchWarning
from ccal.losses import InfoNCELoss as InfoNCELoss
from ccal.losses import PairwiseRankingLoss as PairwiseRankingLoss
from ccal.losses import SigmoidLoss as SigmoidLoss
from ccal.losses import TraceNormLoss as TraceNormLoss
from ccal.model import DualEncoder as DualEncoder
from ccal.model import load as load
from ccal.retrieval import Index as Index
from ccal.training import Settings as Settings
from ccal.training import evaluate as evaluate
from ccal.training import fit as fit
from ccal.training import train as train

__all__: list[str]
__version__: str
