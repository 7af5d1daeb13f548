/* The reader's choice of device, and what a number tells of itself. Without this script the default device stands. */
(() => {
  "use strict";
  const KEY = "flops-and-bytes.device";
  const SCRIPT = document.currentScript.src;
  const store = {
    get() { try { return localStorage.getItem(KEY) } catch { return null } },
    set(device) { try { localStorage.setItem(KEY, device) } catch { /* a private window forgets */ } },
  };
  let page = { quotes: {}, records: {}, words: {} };
  let tip = null;

  /* The device whose value a number shows for a chosen one: in a sentence, another's rather than a dash. */
  function tellerOf(element, device) {
    const quote = page.quotes[element.dataset.quote];
    const isLacking = quote && quote.on[device]?.[1] == null && !element.closest("table");
    return (isLacking && quote.instead) || device;
  }

  /* Numbers, outputs, figures and tables of one device. */
  function show(device) {
    const isOfDevice = (variant) => variant?.dataset.devices.split(" ").includes(device);
    for (const packed of document.querySelectorAll("template.variant")) { // before the numbers: it may hold some
      if (isOfDevice(packed.content.firstElementChild)) packed.replaceWith(packed.content);
    }
    for (const element of document.querySelectorAll("data[data-quote]")) {
      const texts = page.quotes[element.dataset.quote]?.on;
      if (!texts) continue; // an exact value: the same everywhere
      const teller = tellerOf(element, device);
      const [text, value, stale = false] = texts[teller] ?? ["—", null];
      element.textContent = text;
      element.value = value ?? "";
      element.classList.toggle("absent", value === null);
      element.classList.toggle("stale", stale);
      element.classList.toggle("elsewhere", teller !== device);
      element.title = value === null || teller !== device ? page.words.absent : "";
    }
    const groups = new Map();
    for (const variant of document.querySelectorAll("[data-devices]")) {
      const group = groups.get(variant.parentElement) ?? [];
      groups.set(variant.parentElement, [...group, variant]);
    }
    for (const variants of groups.values()) {
      const chosen = variants.find(isOfDevice) ?? variants[0];
      for (const variant of variants) variant.hidden = variant !== chosen;
    }
    for (const part of document.querySelectorAll("[data-only]")) part.hidden = part.dataset.only !== device;
    document.getElementById("device-choice").dataset.shown = device;
    for (const note of document.querySelectorAll(".device-note")) note.hidden = note.dataset.default === device;
    for (const note of document.querySelectorAll(".elsewhere-note")) note.hidden = !document.querySelector("data.elsewhere");
  }

  /* What another device gave lies in a file beside the page: it joins what the page holds. */
  async function fetchOf(device) {
    const into = page;
    if (!into.elsewhere?.includes(device)) return;
    const told = await (await fetch(`devices/${device}.json`)).json();
    if (into !== page || !into.elsewhere.includes(device)) return; // gone on, or fetched twice
    into.elsewhere = into.elsewhere.filter((other) => other !== device);
    for (const [key, found] of Object.entries(told.quotes)) into.quotes[key].on[device] = found;
    for (const [snippet, record] of Object.entries(told.records)) into.records[snippet][device] = record;
    for (const [place, variant] of Object.entries(told.variants)) {
      const packed = document.querySelector(`template[data-at="${place}"]`);
      if (packed) packed.innerHTML = variant;
    }
    document.querySelector("#provenance tbody")?.insertAdjacentHTML("beforeend", told.rows);
  }

  async function choose(select) {
    const device = select.value;
    try { await fetchOf(device) } catch { select.value = select.dataset.shown } // no connection
    if (select.isConnected && select.value === device) show(device);
    reachCode();
  }

  /* What the card at a number says: where it is from, which the list at the page's end knows, and whose it is. */
  function origin(element) {
    const key = element.dataset.quote;
    const value = key.split(/[.:]/, 2).join("."); // of a table's entry, the table
    const listed = [...document.querySelectorAll(".provenance-values code")].find((code) => code.textContent === value);
    if (!listed) return;
    const link = listed.parentElement.firstElementChild.cloneNode(true);
    if (link.hash) link.addEventListener("click", (event) => { // not the theme's navigation: the browser's own marks its target
      event.preventDefault();
      event.stopPropagation();
      close();
      location.hash = link.hash;
    });
    const quote = page.quotes[key]; // none: the same on all devices
    const device = tellerOf(element, document.getElementById("device-choice")?.value);
    const records = page.records[key.split(".")[0]] ?? {};
    const record = records[device] ?? Object.values(records)[0];
    const facts = document.createElement("p");
    facts.textContent = quote ? (quote.on[device]?.[1] == null ? page.words.absent : record) : page.words.exact;
    return [link, facts];
  }

  /* The card that opens at a number, or at a term of the glossary: there it says what the browser's own tooltip would. */
  function open(element) {
    close();
    const content = element.matches(".term") ? [element.title] : origin(element);
    if (!content) return;
    tip = document.createElement("div");
    tip.className = "provenance-card";
    tip.id = "card";
    tip.setAttribute("role", "tooltip");
    tip.append(...content);
    document.body.append(tip);
    const box = element.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    const below = box.bottom + tip.offsetHeight + 8 < innerHeight;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(below ? box.bottom + 4 : box.top - tip.offsetHeight - 4) + scrollY}px`;
    tip.owner = element;
    if (element.matches(".term")) {
      tip.line = element.title;
      element.title = "";
      element.setAttribute("aria-describedby", "card");
    }
  }
  function close() {
    if (tip?.line) {
      tip.owner.title = tip.line;
      tip.owner.removeAttribute("aria-describedby");
    }
    tip?.remove();
    tip = null;
  }

  /* A line that is led to inside a folded part must be seen. */
  function unfold() {
    let name = location.hash.slice(1);
    try { name = decodeURIComponent(name) } catch { /* an address may hold anything */ }
    const target = name && document.getElementById(name);
    if (!target) return;
    const folds = [];
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) folds.push(fold);
    const wasHidden = folds.some((fold) => !fold.open);
    for (const fold of folds) fold.open = true;
    if (!/^H[1-6]$/.test(target.tagName)) target.scrollIntoView({ block: "center" }); // a line of code; a heading stands at the top
    else if (wasHidden) target.scrollIntoView();
  }

  function start() {
    close();
    const data = document.getElementById("ledger-data");
    page = data ? JSON.parse(data.dataset.json) : { quotes: {}, records: {}, words: {} };
    const select = document.getElementById("device-choice");
    if (!select) return;
    select.dataset.shown ??= select.options[0].value; // what the page was built with
    const remembered = store.get();
    if (remembered && [...select.options].some((option) => option.value === remembered)) select.value = remembered;
    if (select.value !== select.dataset.shown) choose(select);
    select.addEventListener("change", () => {
      store.set(select.value);
      choose(select);
    });
  }

  /* What the theme leaves out of reach: names of the search dialog and of copy buttons, wide tables by keyboard. */
  function reach() {
    for (const wide of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex], .table-frame *)")) wide.tabIndex = 0;
    for (const nav of document.querySelectorAll("nav.md-code__nav:not([role])")) nav.setAttribute("role", "none");
    const search = document.querySelector(".md-search:not([aria-label])");
    search?.setAttribute("aria-label", search.querySelector("input").placeholder);
  }
  new MutationObserver(reach).observe(document.documentElement, { childList: true, subtree: true });
  reach(); // a page without code may have no change to come

  /* Code and formulas wider than their frame, likewise: the theme sees to it when it comes into sight. Here a few milliseconds' worth of
     blocks at a time, when nothing else is to be done. */
  const whenIdle = window.requestIdleCallback ?? ((task) => setTimeout(task, 200, { timeRemaining: () => 0 }));
  function reachCode() {
    const blocks = [...document.querySelectorAll(":is(pre > code, div.arithmatex):not([tabindex])")];
    whenIdle(function some(rest) {
      const until = performance.now() + 6;
      do {
        const code = blocks.pop();
        if (code?.scrollWidth > code?.clientWidth) code.tabIndex = 0;
      } while (blocks.length && rest.timeRemaining() > 2 && performance.now() < until);
      if (blocks.length) whenIdle(some);
    });
  }

  let leaving = 0, dismissed = false; // until the mouse moves: a page that moves under it opens no card
  document.addEventListener("pointermove", () => { dismissed = false });
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse" || dismissed) return;
    const number = event.target.closest?.("data[data-quote], .term");
    if (number || event.target.closest?.(".provenance-card")) clearTimeout(leaving);
    else if (tip) leaving = setTimeout(close, 250);
    if (number && number !== tip?.owner) open(number);
  });
  document.addEventListener("click", (event) => {
    const number = event.target.closest?.("data[data-quote]");
    if (number) open(number);
    else close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    close();
    dismissed = true;
  });
  /* A term is a link, and so is a note's number: the keyboard opens its card on the way, a finger with a first tap; a second
     one follows it. The theme opens the note of a number that has the focus. */
  let byFinger = false, before = null; // what had the focus before the finger came
  document.addEventListener("focusin", (event) => event.target.matches?.(".term:focus-visible") && open(event.target));
  document.addEventListener("focusout", (event) => event.target === tip?.owner && close());
  document.addEventListener("pointerdown", (event) => {
    byFinger = event.pointerType !== "mouse";
    before = document.activeElement;
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".term, .footnote-ref");
    if (!link || !byFinger || link === tip?.owner || link === before) return;
    event.preventDefault();
    event.stopPropagation(); // before the theme's navigation takes it
    if (link.matches(".term")) open(link);
    else link.focus();
  }, true);
  addEventListener("hashchange", unfold);
  addEventListener("pageshow", (event) => event.persisted && start()); // Back may bring a page as it was left

  /* Scripts are fetched where something waits for them: the planner's, that of error messages when somebody turns to
     theirs, that of files when somebody brings some, that of the pipeline, and those of live figures when they come near. */
  const near = new IntersectionObserver((seen) => {
    for (const { target } of seen.filter((entry) => entry.isIntersecting)) {
      near.unobserve(target);
      import(new URL(`${target.dataset.live}.js`, SCRIPT)).then((drawn) => drawn.default(target));
    }
  }, { rootMargin: "300px" });
  const plan = () => {
    if (document.querySelector("form.planner")) import(new URL("planner.js", SCRIPT));
    document.querySelector("form.planner-memory")?.addEventListener("focusin", () => import(new URL("planner-memory.js", SCRIPT)), { once: true });
    const box = document.querySelector("form.planner-files:not([data-listens])"), bring = (files) => import(new URL("planner-files.js", SCRIPT)).then((found) => found.default(box, files));
    if (box) {
      box.dataset.listens = "";
      box.addEventListener("input", ({ target }) => bring([...(target.files ?? [])]));
      for (const kind of ["dragover", "drop"]) box.addEventListener(kind, (event) => {
        if (!event.dataTransfer.types.includes("Files")) return;
        event.preventDefault(); // or the browser would open the file
        if (kind === "drop") bring([...event.dataTransfer.files]);
      });
    }
    if (document.querySelector("[data-pipeline]")) import(new URL("pipeline.js", SCRIPT)).then((drawn) => drawn.default());
    for (const place of document.querySelectorAll("[data-live]:empty")) near.observe(place);
  };

  /* The theme's navigation leaves the header alone: the language switch would go on to lead to where it led before. */
  function lead() {
    for (const link of document.querySelectorAll(".language-switch")) {
      const other = document.head.querySelector(`link[hreflang="${link.lang === "zh" ? "zh-Hans" : "en"}"]`);
      if (URL.canParse(other?.href)) link.href = new URL(other.href).pathname;
    }
  }

  const ready = () => { start(); unfold(); document.fonts.ready.then(reachCode); lead(); plan(); };
  if (window.document$) window.document$.subscribe(ready); // also after instant navigation
  else addEventListener("DOMContentLoaded", ready);
})();
