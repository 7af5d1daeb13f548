"""Environment variables that change what a snippet gives: a record is made without them."""

from __future__ import annotations

import os

NOTED = {"TORCH_CUDNN_SDPA_DEPRIORITIZED"}  # chooses between kernels that torch has; some cuDNN cannot run its own
CHANGE_RESULTS = NOTED | {
    # which arithmetic
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    # which kernels
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "DISABLE_ADDMM_CUDA_LT",
    "DNNL_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_COMPILE_DISABLE",
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    # how they are launched, and on how many threads
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    # how memory is allocated
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
}


def describe_environment() -> dict[str, str]:
    """Those that are set here, by name; a record notes them."""
    return {name: os.environ[name] for name in sorted(CHANGE_RESULTS) if os.environ.get(name)}


def why_not_to_publish() -> str:
    """One line that says what to unset before a record is made to be published; empty if there is nothing."""
    refused = sorted(describe_environment().keys() - NOTED)
    if not refused:
        return ""
    named = ", ".join(f"{name}={os.environ[name]}" for name in refused)
    unset = " ".join(f"-u {name}" for name in refused)
    return f"the environment changes what is measured: {named}; record without it: env {unset} python -m ledger record"
