# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Names of DCGM's fields: current ones and those of dcgm-exporter 1.x. The only table of them.

Later exporters still serve the names of 1.x with their file 1.x-compatibility-metrics.csv, and the best-known recipes
use them. A field has the same unit and the same labels under both names.
Source: NVIDIA/go-dcgm pkg/dcgm/const_fields.go, legacyDCGMFields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

PREFIX = "DCGM_FI_"
# Two witnesses of the load of a GPU.
GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"

NAMES_IN_1X: Mapping[str, str] = MappingProxyType(
    {
        "DCGM_FI_DEV_SM_CLOCK": "dcgm_sm_clock",
        "DCGM_FI_DEV_MEM_CLOCK": "dcgm_memory_clock",
        "DCGM_FI_DEV_MEMORY_TEMP": "dcgm_memory_temp",
        "DCGM_FI_DEV_GPU_TEMP": "dcgm_gpu_temp",
        "DCGM_FI_DEV_POWER_USAGE": "dcgm_power_usage",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "dcgm_total_energy_consumption",
        "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": "dcgm_pcie_tx_throughput",
        "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": "dcgm_pcie_rx_throughput",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "dcgm_pcie_replay_counter",
        GPU_UTIL: "dcgm_gpu_utilization",
        "DCGM_FI_DEV_MEM_COPY_UTIL": "dcgm_mem_copy_utilization",
        "DCGM_FI_DEV_ENC_UTIL": "dcgm_enc_utilization",
        "DCGM_FI_DEV_DEC_UTIL": "dcgm_dec_utilization",
        "DCGM_FI_DEV_XID_ERRORS": "dcgm_xid_errors",
        "DCGM_FI_DEV_POWER_VIOLATION": "dcgm_power_violation",
        "DCGM_FI_DEV_THERMAL_VIOLATION": "dcgm_thermal_violation",
        "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": "dcgm_sync_boost_violation",
        "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": "dcgm_board_limit_violation",
        "DCGM_FI_DEV_LOW_UTIL_VIOLATION": "dcgm_low_util_violation",
        "DCGM_FI_DEV_RELIABILITY_VIOLATION": "dcgm_reliability_violation",
        "DCGM_FI_DEV_FB_FREE": "dcgm_fb_free",
        "DCGM_FI_DEV_FB_USED": "dcgm_fb_used",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "dcgm_ecc_sbe_volatile_total",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "dcgm_ecc_dbe_volatile_total",
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": "dcgm_ecc_sbe_aggregate_total",
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "dcgm_ecc_dbe_aggregate_total",
        "DCGM_FI_DEV_RETIRED_SBE": "dcgm_retired_pages_sbe",
        "DCGM_FI_DEV_RETIRED_DBE": "dcgm_retired_pages_dbe",
        "DCGM_FI_DEV_RETIRED_PENDING": "dcgm_retired_pages_pending",
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "dcgm_nvlink_flit_crc_error_count_total",
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "dcgm_nvlink_data_crc_error_count_total",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "dcgm_nvlink_replay_error_count_total",
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "dcgm_nvlink_recovery_error_count_total",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "dcgm_nvlink_bandwidth_total",
        ENGINE_ACTIVE: "dcgm_fi_prof_gr_engine_active",
        "DCGM_FI_PROF_SM_ACTIVE": "dcgm_fi_prof_sm_active",
        "DCGM_FI_PROF_SM_OCCUPANCY": "dcgm_fi_prof_sm_occupancy",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "dcgm_fi_prof_pipe_tensor_active",
        "DCGM_FI_PROF_DRAM_ACTIVE": "dcgm_fi_prof_dram_active",
        "DCGM_FI_PROF_PCIE_TX_BYTES": "dcgm_fi_prof_pcie_tx_bytes",
        "DCGM_FI_PROF_PCIE_RX_BYTES": "dcgm_fi_prof_pcie_rx_bytes",
    }
)
_IN_TODAYS = {old: field for field, old in NAMES_IN_1X.items()}
_ANY_IN_1X = "|".join(sorted(_IN_TODAYS))
# Regular expressions for the name of any field.
ANY_FIELD = rf"(?:{PREFIX}\w+|{_ANY_IN_1X})"
_NEW, _OLD = re.compile(rf"\b{PREFIX}\w+"), re.compile(rf"\b(?:{_ANY_IN_1X})\b")


def in_1x(text: str) -> str:
    """A name or PromQL with the names of dcgm-exporter 1.x. Fields without such a name keep theirs."""
    return _NEW.sub(lambda match: NAMES_IN_1X.get(match[0], match[0]), text)


def in_todays(text: str) -> str:
    """A name or PromQL with DCGM's own names."""
    return _OLD.sub(lambda match: _IN_TODAYS[match[0]], text)


def is_field(series: str) -> bool:
    """Whether dcgm-exporter serves a field of DCGM under this name."""
    return series.startswith(PREFIX) or series in _IN_TODAYS


def reads_fields(query: str) -> bool:
    """Whether PromQL reads fields of DCGM."""
    return PREFIX in in_todays(query)


def either(promql: str) -> str:
    """PromQL of one field, by its current name or else by its name in 1.x."""
    old = in_1x(promql)
    return promql if old == promql else f"({promql} or {old})"


def any_of(fields: Iterable[str]) -> str:
    """A regular expression for the names of series, with those of fields in 1.x."""
    names = sorted(fields)
    return "|".join(dict.fromkeys((*names, *map(in_1x, names))))
