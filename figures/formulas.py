"""The tables of the page of formulas: twelve for every day, then each once, with the two values that test it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ledger.units import DASH, format_value

COLUMNS = ("name", "formula", "predicted", "measured", "ratio")
DAILY_COLUMNS = ("name", "formula", "holds", "example", "tested", "ratio")


class Formula(NamedTuple):
    """A row. Its name is a label of the page."""

    name: str
    tex: str
    derived_at: str  # a heading of a chapter
    snippet: str  # that binds what it predicts
    predicted: str  # what to quote from the snippet
    measured: str = ""  # nothing where nobody can measure
    measured_by: str = ""  # the snippet of what was measured, if it is another
    also: tuple[str, ...] = ()  # further values that follow from the formula, or say how far off it was

    def quotes(self) -> tuple[str, str]:
        """Full names of the prediction and of the measurement, with their formats if they have some."""
        measured = f"{self.measured_by or self.snippet}.{self.measured}" if self.measured else ""
        return f"{self.snippet}.{self.predicted}", measured


# fmt: off
GROUPS: dict[str, tuple[Formula, ...]] = {
    "memory": (
        Formula("elements", r"n \cdot e",
            "number-formats.md#memory", "number_formats",
            "matrix_bytes.fp8_e4m3", "measured_written_bytes"),
        Formula("position", r"o + i\,s_0 + j\,s_1",
            "storage-and-strides.md#strides", "storage_and_strides",
            "position", "paths.row.2"),
        Formula("view", r"n_\text{storage} \cdot e",
            "storage-and-strides.md#bytes", "storage_and_strides",
            "row_held_bytes", "measured_view_bytes"),
        Formula("chain", r"2 \cdot n\,e",
            "tensor-operations.md#count", "tensor_operations",
            "expressions.0.peak_bytes", "measured_expressions.0.peak_bytes",
            also=("tensor_operations.to_counted_ratio",)),
        Formula("rounded", r"100 \cdot 512 \cdot \lceil r / 512 \rceil",
            "gpu-memory.md#luck", "gpu_memory",
            "requests.vectors.allocated_bytes", "measured_requests.vectors.allocated_bytes"),
        Formula("peak", r"(L + 4)\,A_\text{layer} + (L + 1)\,W_\text{layer}",
            "gpu-memory.md#peak", "gpu_memory",
            "peak_bytes", "measured_peaks.allocated_bytes"),
    ),
    "flops": (
        Formula("product", r"2mnp",
            "counting-flops.md#matmul", "counting_flops",
            "product_flops:plain", "counted_flops:plain"),
        Formula("performed", r"2mnp \approx mp\,(2n - 1)",
            "counting-flops.md#matmul", "counting_flops",
            "convention_flops", "performed_flops"),
        Formula("point", r"2 \cdot m \cdot np, \; m = 1",
            "counting-flops.md#linear-model", "counting_flops",
            "claimed_flops", "per_point_flops"),
        Formula("einsum", r"2\,b\,H\,Q\,T_q\,T_k",
            "tensor-operations.md#einsum", "named_dimensions",
            "by_formula_flops", "einsum_flops"),
        Formula("attention", r"4\,T^2 d",
            "counting-flops.md#blind", "counting_flops",
            "attention_flops", "math_flops"),
        Formula("two_layers", r"2\,C_\text{fwd}",
            "gradients.md#two-products", "gradients",
            "claimed_backward_flops", "backward_flops"),
        Formula("depth", r"2 - 1 / L",
            "gradients.md#count", "gradients",
            "depth_ratio.8", "measured_deep_comparison.8.measured_time_ratio",
            also=("gradients.predicted_backward_seconds", "gradients.measured_to_predicted_ratio")),
        Formula("transformer", r"6ND",
            "gradients.md#six-n-d", "gradients",
            "six_n_d_flops", "transformer_flops"),
        Formula("muon", r"5\,(4m^2n + 2m^3)",
            "optimizers.md#muon-flops", "muon",
            "by_hand_flops", "counted_flops"),
        Formula("gpt3", r"6ND",
            "two-questions.md#exercises", "two_questions",
            "gpt_3_flops", "GPT_3_FLOPS"),
    ),
    "time": (
        Formula("rate", r"t = C / F",
            "measure-your-gpu.md#predicted", "measure_your_gpu",
            "predicted_seconds", "full_seconds",
            also=("measure_your_gpu.measured_to_predicted_ratio",)),
        Formula("run", r"R\,t = \frac{6ND}{P \cdot \mathrm{MFU}}",
            "two-questions.md#how-long", "two_questions",
            "napkin_gpu_hours:wan", "published.llama_3_70b.gpu_hours:wan",
            also=("two_questions.planned_to_napkin_ratio",)),
        Formula("casts", r"6\,bT\,df / P + e_\text{cast}\,(bT\,d + df + bT\,f) / B",
            "fp8.md#speed", "fp8",
            "formula_ratio.large", "PUBLISHED_RATIO.large"),
        Formula("h100", r"P = n_\text{SM}\,c\,q \cdot 2\,\nu",
            "mfu.md#peak", "mfu",
            "DERIVED_FLOP_PER_SECOND.H100 SXM.bfloat16", "PEAK_FLOP_PER_SECOND.H100 SXM.bfloat16",
            also=("sustained_rate.predicted_flop_per_second", "sustained_rate.predicted_flops_per_cycle")),
        Formula("l40s", r"P = n_\text{SM}\,c\,q \cdot 2\,\nu",
            "hardware.md#derive", "hardware",
            "derived_teraflops.L40S.bfloat16:.1f", "PEAK_TERAFLOPS.L40S.bfloat16:.1f"),
        Formula("utilization", r"t = C / P",
            "mfu.md#mfu", "mfu",
            "predicted_seconds.bfloat16", "measured_seconds.bfloat16",
            also=("attention_speed.predicted_forward_seconds", "mfu_limits.predicted_best_flop_per_second",
                  "mfu_limits.measured_to_predicted_ratio", "timing.predicted_seconds")),
        Formula("waves",
            r"\frac{mp}{xy\,n_\text{SM}} \Big/ "
            r"\Big\lceil \tfrac{1}{n_\text{SM}} \lceil m / x \rceil \lceil p / y \rceil \Big\rceil",
            "mfu.md#tiles", "mfu",
            "tilings.4352.filled_share", "measured_of_full_share.4352",
            also=("mfu_limits.predicted_drops", "mfu_limits.predicted_share", "mfu_limits.predicted_waves")),
        Formula("relu", r"\max(C / P,\; S / B)",
            "roofline.md#ridge", "roofline",
            "measured_points.relu.roof_seconds", "measured_points.relu.median_seconds"),
        Formula("matmul", r"\max(C / P,\; S / B)",
            "roofline.md#ridge", "roofline",
            "measured_largest.sheet_seconds", "measured_largest.median_seconds"),
        Formula("intensity", r"1 \Big/ \Big(\frac{1}{m} + \frac{1}{n} + \frac{1}{p}\Big)",
            "roofline.md#work", "roofline",
            "thousand_intensity:.1f"),
        Formula("call", r"\max(C / P,\; S / B,\; t_0)",
            "roofline.md#launch", "roofline",
            "HIDDEN_SIDE:.0f",
            also=("launch_costs.predicted_in_a_row_seconds", "launch_costs.hundred_to_predicted_ratio")),
        Formula("batch", r"1 \Big/ \Big(\frac{B}{P} - \frac{1}{d} - \frac{1}{f}\Big)",
            "roofline.md#tokens", "roofline",
            "ridge_tokens.H100 SXM:.1f"),
        Formula("fusion", r"S_\text{chain} / S_\text{fused}",
            "roofline.md#fusion", "roofline",
            "fusion_bytes_ratio"),
        Formula("order", r"\frac{d_\text{in}\, d_\text{out}\,(r + T)}{T\,r\,(d_\text{in} + d_\text{out})}",
            "counting-flops.md#order", "named_dimensions",
            "order_ratio", also=("named_dimensions.predicted_order_ratio",)),
        Formula("copy", r"2\,n e / B",
            "storage-and-strides.md#bandwidth", "storage_and_strides",
            "predicted_copy_seconds", "measured_contiguous_seconds",
            also=("storage_and_strides.to_predicted_ratio",)),
        Formula("link", r"t_\text{link} = n e / B_\text{link}",
            "gpu-memory.md#transfer", "link_and_context",
            "predicted_link_seconds", "measured_largest_seconds.pinned_there",
            also=("link_and_context.predicted_half_bytes", "data_overlap.predicted_images_seconds",
                "data_overlap.predicted_tokens_seconds")),
        Formula("in_line", r"t_\text{copy} + t_\text{link}",
            "gpu-memory.md#transfer", "link_and_context",
            "predicted_in_line_seconds", "measured_largest_seconds.in_line_there"),
        Formula("median", r"1.25 \cdot \sigma / \sqrt{k}",
            "timing.md#how-many", "timing",
            "predicted_error_share", "measured_error_share"),
    ),
    "training": (
        Formula("adamw", r"4 + 4 + 8",
            "two-questions.md#how-big", "two_questions",
            "naive_bytes:plain", "counted_per_parameter:plain"),
        Formula("master", r"2 + 2 + 4 + 8",
            "mixed-precision.md#recipes", "mixed_precision",
            "state_bytes.master:plain", "counted_bytes.master:plain"),
        Formula("bf16", r"2 + 2 + 4",
            "mixed-precision.md#recipes", "mixed_precision",
            "state_bytes.bf16:plain", "torch_bytes.bf16:plain"),
        Formula("largest", r"R\,M_\text{GPU} / 16",
            "two-questions.md#how-big", "two_questions",
            "sharded_parameters"),
        Formula("gradients", r"4N",
            "gradients.md#memory", "gradients",
            "state_bytes.float32.parameter_bytes", "state_bytes.float32.gradient_bytes"),
        Formula("state", r"8N",
            "optimizers.md#state", "optimizer_costs",
            "predicted_state_bytes.adamw_fused", "steps.adamw_fused.measured_state_bytes"),
        Formula("foreach", r"4N",
            "optimizers.md#traffic", "optimizer_costs",
            "predicted_extra_bytes.adamw_foreach", "steps.adamw_foreach.measured_extra_bytes"),
        Formula("update", r"28N / B",
            "optimizers.md#traffic", "optimizer_costs",
            "predicted_seconds.adamw_fused", "steps.adamw_fused.measured_step.median_seconds"),
        Formula("step", r"6N\,bT / P + 28N / B",
            "mixed-precision.md#speed", "mixed_precision",
            "predicted_h100_seconds",
            also=("mixed_precision.predicted_step_ratio",)),
        Formula("checkpoint", r"\frac{1 + 2 + 1}{1 + 2}",
            "compute-for-memory.md#four-thirds", "compute_for_memory",
            "CLAIMED_RATIO", "hfu_to_mfu_ratio.gpt2.full"),
        Formula("checkpoint_time", r"t_\text{none} \cdot C_\text{done} / C_\text{none}",
            "compute-for-memory.md#hfu", "compute_for_memory",
            "measured_comparison.full.predicted_seconds", "measured_strategies.full.timing.median_seconds",
            also=("compute_for_memory.to_predicted_ratio",)),
        Formula("file", r"12N + 4k + 8n + s_\text{rng}",
            "training-loop.md#size", "training_loop",
            "predicted_checkpoint_bytes:full", "measured_checkpoint_bytes:full"),
        Formula("tokens", r"P \cdot \mathrm{MFU} / (6N)",
            "training-loop.md#needed", "data_loading",
            "needed_rate:short"),
        Formula("overlap", r"\max(l, w)",
            "training-loop.md#overlap", "data_overlap",
            "measured_loops.double.predicted_max_seconds", "measured_loops.double.max_seconds",
            also=("data_overlap.predicted_sum_seconds",)),
        Formula("scaling", r"(s \cdot x)_\text{fp16} / s",
            "mixed-precision.md#loss-scaling", "number_formats",
            "TINY:sci", "scaled_gradient:sci"),
        Formula("scale", r"\sigma_w \sqrt{d}",
            "training-loop.md#scale", "models_and_initialization",
            "root_d.16384", "measured_scale.16384"),
    ),
    "transformers": (
        Formula("gpt2_small", r"Vd + Td + L\,(12d^2 + 13d) + 2d",
            "gpt2-parameters.md#model", "gpt2_parameters",
            "total_parameters.small:full", "library_parameters.small:full"),
        Formula("gpt2_xl", r"Vd + Td + L\,(12d^2 + 13d) + 2d",
            "gpt2-parameters.md#model", "gpt2_parameters",
            "total_parameters.xl:full", "library_parameters.xl:full"),
        Formula("llama", r"2Vd + L\,(2d\,HQ + 2d\,GQ + 3df + 2d) + d",
            "gpt2-parameters.md#llama", "gpt2_parameters",
            "llama_parameters:full", "llama_library_parameters:full"),
        Formula("forward", r"2T\,(12Ld^2 + Vd) + 4T^2dL",
            "counting-flops.md#model", "counting_tools",
            "true_flops.1024:full", "said_flops.FlopCounterMode.1024:full"),
        Formula("components", r"2TM + 4T^2LHQ",
            "transformer-flops.md#components", "transformer_flops",
            "total_flops.llama", "counted_total_flops.llama"),
        Formula("fused_step", r"3C + 2T^2LHQ",
            "transformer-flops.md#backward", "transformer_flops",
            "fused_step_flops:full", "counted_fused_step_flops:full",
            also=("attention_speed.predicted_backward_ratio",)),
        Formula("palm", r"(6M + 12LHQT)\,T",
            "transformer-flops.md#transformer-flops", "transformer_flops",
            "palm_step_flops:full", "counted_step_flops:full"),
        Formula("crossing", r"2T_\text{half}M = 4T_\text{half}^2LHQ",
            "transformer-flops.md#contexts", "transformer_flops",
            "crossing_rest_flops:full", "crossing_attention_flops:full"),
        Formula("block", r"bT\,(8d + 4HQ + 4GQ + 8f + 4H + 8) + 24",
            "activations.md#block", "activations",
            "layer_total_bytes.llama:full", "counted_layer_bytes.llama_flash_bf16:full"),
        Formula("dropout", r"34\,bTd + 5\,bHT^2",
            "activations.md#variants", "activations",
            "block_formula_bytes:full", "block_bytes:full"),
        Formula("training_step", r"6N + A + 8bTV",
            "activations.md#step", "activations",
            "steps.gpt2_bf16.peak_bytes:full", "traced_peak_bytes.gpt2_bf16:full"),
        Formula("whole_step", r"6N + A + 8\,bTV",
            "full-ledger.md#memory", "step_peaks",
            "one.formula_bytes:full", "one.counted_bytes:full"),
        Formula("composed", r"4\,bTd\,(2L + 1)",
            "how-far-off.md#theirs", "plan_transformers",
            "norms_bytes:full", "unplanned_bytes:full"),
        Formula("step_time", r"\sum_i t_i",
            "full-ledger.md#time", "full_ledger",
            "predicted_step_seconds", "measured_step_seconds",
            also=("full_ledger.predicted_lines_seconds", "full_ledger.predicted_products_share",
                  "full_ledger.predicted_step_flops", "full_ledger.measured_to_predicted_ratio",
                  "gpt2_ladder.predicted_rungs_seconds")),
        Formula("run_time", r"3CD / (T P \cdot \mathrm{MFU})",
            "two-questions.md#how-long", "full_ledger",
            "run_hours:.1f"),
    ),
    "tokens": (
        Formula("added", r"(V' - V)\,d",
            "tokens.md#vocabulary", "tokens",
            "added_parameters:full", "counted_added_parameters:full"),
        Formula("text_tokens", r"S / \beta",
            "tokens.md#yours", "tokens",
            "foretold_tokens:.0f", "counted_tokens:full"),
        Formula("text_flops", r"C_1 S / \beta",
            "tokens.md#bill", "tokens",
            "english_run_flops"),
        Formula("bits", r"\ell / (\beta \ln 2)",
            "tokens.md#bits", "tokens",
            "foretold_bits:.3f", "counted_bits:.3f"),
    ),
    "parallel": (
        Formula("stage_1", r"8N + 8N/R",
            "many-gpus.md#memory", "many_gpus",
            "rank_bytes.zero_1:full", "held_bytes.zero_1:full", "count_ranks"),
        Formula("stage_3", r"16N/R",
            "many-gpus.md#memory", "many_gpus",
            "rank_bytes.fsdp:full", "held_bytes.fsdp:full", "count_ranks"),
        Formula("reduced", r"4N",
            "many-gpus.md#wire", "many_gpus",
            "ddp_bytes.allreduce:full", "counted_payload.ddp.allreduce:full", "count_ranks",
            also=("count_ranks.predicted_payload",)),
        Formula("sharded", r"4\,(2N - N_0)",
            "many-gpus.md#wire", "many_gpus",
            "fsdp_bytes.2.allgather:full", "counted_payload.fsdp.allgather:full", "count_ranks"),
        Formula("ring", r"2S\,(R - 1)/R",
            "many-gpus.md#wire", "many_gpus",
            "sent_bytes.8"),
        Formula("gathered", r"12N/R + 4(N - N_0)/R + 6N_0",
            "many-gpus.md#gathered", "many_gpus",
            "peak_bytes.64:full", "simulated_bytes.64:full", "count_ranks"),
        Formula("hide", r"(R - 1)/R \cdot P \cdot \mathrm{MFU} / B",
            "many-gpus.md#hidden", "many_gpus",
            "hiding_tokens.NVLink:.0f"),
        Formula("tensor", r"4d\,(R - 1) / N_\text{layer} \cdot P \cdot \mathrm{MFU} / B",
            "parallelism.md#tensor", "parallelism",
            "tensor_wait_share.8"),
        Formula("context", r"2\,(G / H) \cdot P \cdot \mathrm{MFU} / B",
            "parallelism.md#context", "parallelism",
            "ring_tokens.NVLink:.0f"),
        Formula("pipeline", r"(p - 1) / (vm + p - 1)",
            "parallelism.md#pipeline", "pipeline_orders",
            "formula_share.interleaved", "counted_share.interleaved"),
        Formula("experts", r"\tfrac{2}{3} \cdot (R - 1)/R \cdot P \cdot \mathrm{MFU} / (fB)",
            "experts.md#sends", "expert_flops",
            "expert_wait_ratio.narrow.64"),
    ),
    "serving": (
        Formula("cache", r"2LGQ \cdot 2",
            "inference.md#bytes", "inference",
            "token_bytes.llama_8b:full", "counted_bytes.llama_8b:full"),
        Formula("latent_cache", r"L\,(c + r) \cdot 2",
            "inference.md#bytes", "inference",
            "token_bytes.deepseek:full", "latent_counted_bytes:full"),
        Formula("decode", r"(W + TK) / B",
            "inference.md#bound", "decode_speed",
            "predicted_one_seconds", "one_seconds",
            also=("decode_speed.predicted_sweep_seconds", "decode_speed.predicted_sweep_per_second",
                  "decode_speed.predicted_context_seconds", "decode_speed.predicted_prefill_seconds")),
        Formula("scoring", r"4V \left( b\,(T + 1) + bT + 3\,n_\text{chunk} \right)",
            "grpo.md#logits", "grpo",
            "by_hand_bytes", "counted_logits_bytes"),
    ),
}
# fmt: on


class Daily(NamedTuple):
    """A row of the short table. When it holds, an example and what tested it are labels of the page too."""

    name: str
    tex: str
    derived_at: str  # a heading of a chapter
    predicted: str = ""  # full names of two values that test it
    measured: str = ""
    reached: str = ""  # or of one, predicted over measured


# fmt: off
DAILY = (
    Daily("trains", r"C = 6ND", "gradients.md#six-n-d",
        "gradients.six_n_d_flops", "gradients.transformer_flops"),
    Daily("attends", r"12\,LHQ\,T", "transformer-flops.md#transformer-flops",
        "transformer_flops.palm_step_flops", "transformer_flops.counted_step_flops"),
    Daily("lasts", r"t = \frac{6ND}{R\,P \cdot \mathrm{MFU}}", "two-questions.md#how-long",
        "two_questions.napkin_gpu_hours", "two_questions.published.llama_3_70b.gpu_hours"),
    Daily("logged", r"\mathrm{MFU} = \frac{6N \cdot bT}{t\,R\,P}", "mfu.md#mfu"),
    Daily("stored", r"16N", "two-questions.md#how-big",
        "two_questions.naive_bytes", "two_questions.counted_per_parameter"),
    Daily("keeps", r"L\,bT\,(8d + 4HQ + 4GQ + 8f)", "activations.md#block",
        "formulas.layer_bytes", "activations.counted_layer_bytes.llama_flash_bf16"),
    Daily("scores", r"12\,bTV", "activations.md#logits",
        "formulas.BYTES_A_LOGIT", "activations.per_logit.float.peak_bytes"),
    Daily("binds", r"t \ge \max(C / P,\; S / B)", "roofline.md#ridge",
        reached="roofline.GROUPS.matmuls.median_share"),
    Daily("sums", r"2S\,(R - 1)/R", "many-gpus.md#wire",
        reached="many_gpus.large_plain.median_ratio"),
    Daily("hides", r"t \approx \max(t_\text{matmuls},\, t_\text{sent})", "many-gpus.md#hidden"),
    Daily("remembers", r"2LGQ \cdot 2", "inference.md#bytes",
        "inference.token_bytes.llama_8b", "inference.counted_bytes.llama_8b"),
    Daily("decodes", r"t \ge (W + TK) / B", "inference.md#bound",
        "inference.published.fast_8b.reported", "inference.published.fast_8b.bound"),
)
# fmt: on


def daily(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """The short table: a formula a row, whose name leads to its chapter."""
    rows = [[labels[column] for column in DAILY_COLUMNS]]
    for formula in DAILY:
        said = [labels[f"{formula.name}_{column}"] for column in ("holds", "example", "tested")]
        quotes = (formula.reached or formula.predicted, formula.measured)
        predicted, measured = (values[quote] if quote else None for quote in quotes)
        measured = 1 if formula.reached else measured
        rows.append([*_named(formula, labels), *said, ratio(predicted, measured, labels["language"])])
    return rows


def _named(formula: Formula | Daily, labels: Mapping[str, str]) -> tuple[str, str]:
    """Its name, which leads to the chapter, and the formula in one group, which KaTeX does not break across lines."""
    return f"[{labels[formula.name]}]({formula.derived_at})", f"${{{formula.tex}}}$"


def sheet(values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """The short table as it is printed: what each formula gives, and when it holds."""
    rows = [[labels[column] for column in ("name", "formula", "holds")]]
    for formula in DAILY:
        rows.append([*_named(formula, labels), labels[f"{formula.name}_holds"]])
    return rows


def _rows(group: str, values: Mapping[str, Any], labels: Mapping[str, str]) -> list[list[str]]:
    """A formula a row, whose name leads to the chapter."""
    rows = [[labels[column] for column in COLUMNS]]
    for formula in GROUPS[group]:
        quotes = formula.quotes()
        cells = [f"{{{{ {quote} }}}}" if quote else DASH for quote in quotes]
        predicted, measured = (values[quote] if quote else None for quote in quotes)
        rows.append([*_named(formula, labels), *cells, ratio(predicted, measured, labels["language"])])
    return rows


def ratio(predicted: float | None, measured: float | None, language: str = "en") -> str:
    """Measured over predicted; a bare 1 if they are equal to the last digit."""
    if predicted is None or measured is None:
        return DASH
    return "1" if measured == predicted else format_value(measured / predicted, "ratio", language=language)


Table = Callable[[Mapping[str, Any], Mapping[str, str]], list[list[str]]]

memory: Table = partial(_rows, "memory")
flops: Table = partial(_rows, "flops")
time: Table = partial(_rows, "time")
training: Table = partial(_rows, "training")
transformers: Table = partial(_rows, "transformers")
tokens: Table = partial(_rows, "tokens")
parallel: Table = partial(_rows, "parallel")
serving: Table = partial(_rows, "serving")
