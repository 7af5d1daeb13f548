/* The two napkins of "Two questions" as forms. They compute what the snippet computes, in the same order, to the last digit
   shown; their state is in the address, so that an answer can be shared. Without this script the page's tables stand. */
(() => {
  "use strict";
  const SECONDS_PER_DAY = 24 * 60 * 60;
  const answers = {
    "training-time": (field, gpu) => {
      const flops = 6 * field("parameters") * field("tokens");
      const peak = gpu.peak_flop_per_second.bfloat16 ?? gpu.peak_flop_per_second.float16;
      return flops / (field("gpus") * peak * (field("mfu") / 100)) / SECONDS_PER_DAY;
    },
    "largest-model": (field, gpu, form) => {
      const gpus = form.elements.sharded.checked ? field("gpus") : 1;
      return (gpus * gpu.memory_bytes) / field("recipe") / 1e9;
    },
  };

  function start() {
    const data = document.getElementById("data-gpus.GPUS");
    const gpus = data && JSON.parse(data.dataset.json);
    if (!gpus) return; // another page, or no record of the table
    for (const form of document.querySelectorAll("form.calculator")) {
      for (const name of Object.keys(gpus)) form.elements.gpu.append(new Option(name, name, name === form.dataset.gpu));
      form.elements.gpu.value = form.dataset.gpu;
      restore(form);
      form.addEventListener("input", () => {
        answer(form, gpus);
        remember(form);
      });
      form.addEventListener("submit", (event) => event.preventDefault());
      form.hidden = false;
      answer(form, gpus);
    }
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }

  function answer(form, gpus) {
    const fields = [...form.querySelectorAll("input[inputmode]")];
    for (const input of fields) {
      const value = Number(input.value.trim().replaceAll(",", ""));
      input.setCustomValidity(Number.isFinite(value) && value > 0 ? "" : form.dataset.error);
    }
    const wrong = fields.find((input) => !input.checkValidity());
    for (const input of fields) input.setAttribute("aria-invalid", String(!input.checkValidity()));
    const field = (name) => Number(form.elements[name].value.trim().replaceAll(",", ""));
    const result = wrong ? NaN : answers[form.id](field, gpus[form.elements.gpu.value], form);
    form.querySelector("output").textContent = wrong ? form.dataset.error : form.dataset.answer.replace("%", group(result));
  }

  /* One decimal and commas, as Python's ",.1f" writes it. */
  function group(value) {
    if (value >= 1e21) return value.toExponential(1);
    const [whole, decimal] = value.toFixed(1).split(".");
    return `${whole.replace(/\B(?=(\d{3})+$)/g, ",")}.${decimal}`;
  }

  function controls(form) {
    return [...form.elements].filter((element) => element.name);
  }
  function remember(form) {
    const address = new URL(location.href);
    for (const control of controls(form)) {
      const value = control.type === "checkbox" ? String(control.checked) : control.value;
      address.searchParams.set(`${form.id}.${control.name}`, value);
    }
    address.hash = form.id;
    history.replaceState(history.state, "", address);
  }
  function restore(form) {
    const query = new URLSearchParams(location.search);
    for (const control of controls(form)) {
      const value = query.get(`${form.id}.${control.name}`);
      if (value === null) continue;
      if (control.type === "checkbox") control.checked = value === "true";
      else if (control.tagName !== "SELECT" || [...control.options].some((option) => option.value === value)) control.value = value;
    }
  }

  if (window.document$) window.document$.subscribe(start);
  else addEventListener("DOMContentLoaded", start);
})();
