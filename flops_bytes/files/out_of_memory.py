"""What out-of-memory messages say, number by number, and what to try first: in a terminal, and translated for the page.

PyTorch's is made in c10/cuda/CUDACachingAllocator.cpp. From 1.0 to 1.3 it ends in what is "cached", which is what is
reserved less what is allocated; up to 2.0 in what is "reserved in total"; since 2.1 it has what "is allocated by
PyTorch" and what is "reserved by PyTorch but unallocated". ROCm writes HIP for CUDA, c10/xpu XPU, at first without
what is free, torch_npu NPU. CUDAMallocAsyncAllocator.cpp has a message of its own. CUDA's has no numbers, and engines
that serve say at their start what does not fit.
"""

from __future__ import annotations

import re
from typing import Any

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SIZE = r"(\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB)"
PATTERNS = {
    "asked": [re.compile(rf"Tried to allocate {SIZE}", re.ASCII), re.compile(rf"Requested : {SIZE}", re.ASCII)],
    "total": [
        re.compile(rf"has a total capac\w+ of {SIZE}", re.ASCII),
        re.compile(rf"{SIZE} total capac", re.ASCII),
        re.compile(rf"Device limit : {SIZE}", re.ASCII),
    ],
    "free": [
        re.compile(rf"of which {SIZE} is free", re.ASCII),
        re.compile(rf"{SIZE} free;", re.ASCII),
        re.compile(rf"according to CUDA\): {SIZE}", re.ASCII),
    ],
    "allowed": [re.compile(rf"{SIZE} allowed;", re.ASCII), re.compile(rf"memory fraction\) : {SIZE}", re.ASCII)],
    "held": [
        re.compile(rf"{SIZE} is allocated by PyTorch", re.ASCII),
        re.compile(rf"{SIZE} already allocated", re.ASCII),
        re.compile(rf"Currently allocated : {SIZE}", re.ASCII),
    ],
    "graphs": [re.compile(rf"with {SIZE} allocated in private pools", re.ASCII)],
    "reserved": [re.compile(rf"{SIZE} reserved in total", re.ASCII)],
    "idle": [
        re.compile(rf"{SIZE} is reserved by PyTorch but unallocated", re.ASCII),
        re.compile(rf"{SIZE} cached", re.ASCII),
    ],
    "this": [re.compile(rf"this process has {SIZE} memory in use", re.ASCII)],
}
PROCESS = re.compile(rf"(\d+) has {SIZE} memory in use", re.ASCII)
GPU = re.compile(r"(?:GPU|NPU|device) (\d+)", re.ASCII)
SETTING = re.compile(r"PYTORCH_\w+=expandable_segments:True", re.ASCII)
TOOLS = {"CUDA": "nvidia-smi", "HIP": "rocm-smi", "NPU": "npu-smi info", "XPU": "xpu-smi"}  # of who makes the card
CONTEXT = 2 * 2**30  # what a CUDA context and libraries may take: more beside PyTorch is a cause
PARTS = ("asked", "total", "free", "rest", "held", "graphs", "idle", "unsaid", "process", "own", "other", "allowed")
BARE = re.compile(r"(?:CUDA|HIP|NPU)(?: driver)? error:? out of memory|CUBLAS_STATUS_ALLOC_FAILED", re.ASCII)
SERVED = {  # what engines say at their start, and where they name how long a sequence may be
    "vllm": re.compile(r"maximum model length is (\d+)", re.ASCII),
    "vllm, in tokens": re.compile(r"that can be stored in KV cache \((\d+)\)", re.ASCII),
    "vllm, no room": re.compile(r"No available memory for the cache blocks()", re.ASCII),
    "vllm, taken": re.compile(r"is less than desired GPU memory utilization()", re.ASCII),
    "sglang": re.compile(r"increase --mem-fraction-static()", re.ASCII),
}
PLACES = {  # by what stands in a traceback: where memory ran out
    "loss": ("cross_entropy", "logits.float()", "logits = self.lm_head", "loss_function(", "CrossEntropyLoss"),
    "load": ("_load_state_dict", "from_pretrained", "load_state_dict", "safe_open", "torch.load(", "load_checkpoint"),
    "optimizer": ("optimizer.step", "_init_group", "_fused_adam", "_multi_tensor_adam", "exp_avg"),
    "backward": (".backward(", "run_backward"),
}
NEXT = "Tried to allocate "


def decode(text: str) -> list[dict[str, Any]]:
    """Of each message in a text its numbers as they are written, its causes, and what to try first.

    The same of several GPUs is told once, with the numbers of the first. A text without numbers is told as what it is.
    """
    told: list[dict[str, Any]] = []
    text = " ".join(text.split())
    parts = text.replace("Allocation on device ", f"{NEXT}on device ").split(NEXT)
    for n, part in enumerate(parts[1:]):
        found = sizes(NEXT + part) if "MPS backend" not in parts[n] else {}  # which counts in another way
        if "asked" in found:
            one = explained(found, part, parts[n])
            same = next((each for each in told if is_like(one, each)), None)
            if not same:
                told.append(one)
            elif one["gpu"] not in same["gpus"]:
                same["gpus"].append(one["gpu"])
    return told or without_numbers(text)


def without_numbers(text: str) -> list[dict[str, Any]]:
    """What CUDA says itself, or an engine at its start; nothing if it is neither."""
    for pattern in SERVED.values():
        match = pattern.search(text)
        if match:
            return [bare("serve", text) | {"length": match[1]}]
    return [bare("bare", text)] if BARE.search(text) else []


def bare(kind: str, text: str) -> dict[str, Any]:
    return {"gpu": "", "gpus": [], "rows": [], "causes": [], "first": kind} | of_vendor(text) | {"at": place(text)}


def is_like(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two messages say the same, but for the GPU and a twentieth of it."""
    ours, theirs = one["found"], other["found"]
    if [name for name, _ in one["causes"]] != [name for name, _ in other["causes"]] or [*ours] != [*theirs]:
        return False
    near: bool = 20 * max(abs(ours[name] - theirs[name]) for name in ours) <= ours.get("total", 0)
    return near and bool(one["first"] == other["first"] and one["processes"] == other["processes"])


def of_vendor(text: str) -> dict[str, str]:
    """By whose name a message calls the card: the variable of its allocator, and what shows its processes."""
    marks = {each: (f"{each} out", f"{each} error", f"_{each}_", f"({each} ") for each in TOOLS if each != "CUDA"}
    maker = next((each for each, of in marks.items() if any(mark in text for mark in of)), "CUDA")
    return {"variable": f"PYTORCH_{maker}_ALLOC_CONF", "smi": TOOLS[maker]}


def place(before: str) -> str:
    """Where memory ran out, by the last line of a traceback that tells; or nothing."""
    found = ""
    for line in before.split(" File "):
        found = next((name for name, marks in PLACES.items() if any(mark in line for mark in marks)), found)
    return found


def gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"


def in_bytes(number: str, unit: str) -> int:
    return int(float(number) * UNITS[unit])


def sizes(message: str) -> dict[str, int]:
    """The bytes that a message names, however its lines are broken."""
    text = " ".join(message.split())
    found = {}
    for name, patterns in PATTERNS.items():
        for pattern in patterns:
            match = pattern.search(text)
            if match and name not in found:
                found[name] = in_bytes(match[1], match[2])
    if "reserved" in found and "held" in found:
        found["idle"] = max(found["reserved"] - found["held"], 0)
    return found


def explained(found: dict[str, int], text: str, before: str) -> dict[str, Any]:
    """The rows of one message, the causes by the bytes that they explain, and the name of the first advice.

    What stands `before` it is the traceback, and who makes the card.
    """
    said = dict(found)
    if found.get("allowed", 0) > found.get("total", 0):  # a limit that nobody has set
        found = {name: size for name, size in found.items() if name != "allowed"}
    total, used = found.get("total", 0), found.get("held", 0) + found.get("idle", 0)
    matches = [PROCESS.search(part) for part in text.split("Process ")[1:]]
    others = [(match[1], in_bytes(match[2], match[3])) for match in matches if match]
    others = [each for each in others if each[1] <= total]  # a driver that does not know says 2^34 GiB
    if "held" not in found or not total:  # cut off
        others = []
    elif "idle" not in found:  # in the allocator of CUDA itself, or shortened by hand
        found["unsaid"] = max(total - found.get("free", 0) - used - sum(size for _, size in others), 0)
    elif "free" in found:
        beside = total - found["free"] - used - sum(size for _, size in others)
        if "this" in found and found["this"] <= total:
            found["own"] = max(found["this"] - used, 0)
        elif others and 2 * beside < -used:  # in a container its own number is another: one of those named is this one
            mine = min([each for each in others if 20 * each[1] > 19 * used] or others, key=lambda each: each[1])
            others = [each for each in others if each != mine]
            found["own"] = max(mine[1] - used, 0)
            beside += mine[1]
        found["other"] = max(beside - found.get("own", 0), 0)
    else:
        found["rest"] = max(total - used, 0)
    if others:
        found["process"] = sum(size for _, size in others)
    vendor = of_vendor(before[-60:] + text)
    causes, setting, gpu = causes_of(found), setting_of(text, vendor["variable"]), GPU.search(text)
    kind = "unified" if "PYTORCH_ALLOC" in setting else "idle" if "=" in setting else setting
    return vendor | {
        "gpu": gpu[1] if gpu else "",
        "gpus": [gpu[1] if gpu else ""],
        "found": said,
        "card": f"{total / 2**30:.2f}GiB" if total else "",
        "rows": [[name, gib(found[name])] for name in PARTS if name in found],
        "causes": [[name, gib(found[name])] for name in causes],
        "first": "cut" if not causes else kind if causes[0] == "idle" else causes[0],
        "setting": setting,
        "share": f"{100 * found['asked'] / max(total, 1):.0f}",
        "processes": ", ".join([name for name, _ in others]),
        "at": place(before),
    }


def causes_of(found: dict[str, int]) -> list[str]:
    """The names of what explains the failure, that of most bytes first; none if the message is cut off before that.

    Tensors and the request explain it only if a card of this size, with a CUDA context, could not hold both: a
    twentieth is lost to gaps. Else it is what lies beside them; or nothing that the message names, where much is free.
    """
    if "total" not in found:
        return []
    asked, total = found["asked"], found["total"]
    if asked > total:
        return ["asked"]
    if "held" not in found:
        return []
    spare = "rest" if "rest" in found else "free"
    if "allowed" in found and found[spare] >= asked:
        return ["allowed", "idle"] if found.get("idle", 0) >= asked else ["allowed"]
    beside = found.get("own", 0) + found.get("other", 0) + found.get("unsaid", 0)
    full = 20 * (found["held"] + asked + min(beside, CONTEXT)) > 19 * total
    if not full and 20 * (found.get(spare, 0) - asked) >= total:
        return [spare]
    names = ["process", "idle"] + [name for name in ("own", "other", "unsaid") if found.get(name, 0) >= CONTEXT]
    if full:
        names = ["held", "asked", *names]
    return sorted([name for name in names if found.get(name, 0) > 0], key=lambda name: -found[name])


def setting_of(text: str, variable: str) -> str:
    """What the message names against fragments, by the name that it gives; or that its version had nothing."""
    match = SETTING.search(text)
    if match or "max_split_size_mb" in text:
        return match[0] if match else "split"
    return "nothing" if "cached" in text or "in total" in text else f"{variable}=expandable_segments:True"
