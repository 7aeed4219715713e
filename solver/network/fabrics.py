"""The packaged efficiency curves, one profile per generation of scale-up domains, each fitted once.

Their constants are in the catalogue; `benchmarks/fit_fabrics.py` refits them and prints errors on the fitted rows and
on rows held out.
"""

from pydantic import TypeAdapter

from models.catalogue import named_entry
from solver.network.efficiency import FabricProfile

_PROFILES = TypeAdapter(FabricProfile)


def _packaged(name: str) -> FabricProfile:
    return _PROFILES.validate_python(named_entry("fabrics", name))


V100_NVLINK = _packaged("nvlink-2")
SIMAI_NVLINK = _packaged("nvlink-h800")
A100_NVLINK = _packaged("nvlink-3")
HOPPER_NVLINK = _packaged("nvlink-4")
BLACKWELL_NVLINK = _packaged("nvlink-5")
MI300X_XGMI = _packaged("xgmi-mi300x")
# Up to which rate of a domain a generation is taken: between its own rate (150, 200, 300, 450 GB/s) and the next one's.
_SCALE_UP_BY_RATE = ((175e9, V100_NVLINK), (250e9, SIMAI_NVLINK), (350e9, A100_NVLINK), (600e9, HOPPER_NVLINK))


def scale_up_profile(scale_up_bytes_per_s: float, *, full_mesh: bool = False) -> FabricProfile:
    """Profile of the generation that a scale-up rate belongs to, or of a mesh of links from GPU to GPU.

    Pass the domain's own rate as `line_rate` when evaluating it.
    >>> scale_up_profile(450e9).name, scale_up_profile(900e9).name
    ('NVLink 4 with NVLS, 8 GPUs', 'NVLink 5 with NVLS, 8 GPUs')
    """
    if full_mesh:
        return MI300X_XGMI
    for limit, profile in _SCALE_UP_BY_RATE:
        if scale_up_bytes_per_s <= limit:
            return profile
    return BLACKWELL_NVLINK
