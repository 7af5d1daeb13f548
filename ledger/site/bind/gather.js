/* Makes one book of a built site's pages. It runs in a browser, which reads them as a reader's browser does. */

const parse = (html) => new DOMParser().parseFromString(html, "text/html");
const anchor = (name, id) => `${name}.${id.replaceAll(":", ".")}`;

/** The chapters in the order of the navigation on the front page; those before the first part have none. */
function chaptersOf(front) {
  const list = parse(front).querySelector(".md-nav--primary > .md-nav__list");
  const entry = (item, part) => {
    const link = item.querySelector(":scope > a.md-nav__link");
    const path = new URL(link.getAttribute("href"), "site:/").pathname.replace(/^\/|\/$/g, "");
    return { part, path, name: path.replaceAll("/", "-") || "index", title: link.textContent.trim() };
  };
  return [...list.children].flatMap((item) => {
    if (!item.matches(".md-nav__item--section")) return [entry(item, "")];
    const part = item.querySelector("label").textContent.trim();
    return [...item.querySelectorAll(":scope > nav > ul > li")].map((inner) => entry(inner, part));
  });
}

/* What is no part of a book: what answers to the reader, what leads to files, and what stands for another device. */
const LEFT_OUT = `.headerlink, .device-line, .page-links, .provenance, #ledger-data, template, script, noscript, style, [hidden],
  [data-pipeline], [data-live], .footnote > hr, .tabbed-set > input, .planner-fields`;
const FEW = 16; // lines of code, or rows of a table, that stay on one page
const FOR_SCREENS = /^(data-|tabindex|title|align|open|download|target)/;

/** A page's article as a chapter. Links to other chapters lead to them, all others to the site, where it stands. */
function chapterOf(html, { name, path }, names) {
  const page = parse(html);
  const address = page.querySelector("link[rel=canonical]").href;
  const root = new URL("../".repeat(path ? path.split("/").length : 0), address);
  const article = page.querySelector("article.md-content__inner");
  for (const part of article.querySelectorAll(LEFT_OUT)) part.remove();
  for (const set of article.querySelectorAll(".tabbed-set")) { // each part below its label
    const labels = set.querySelectorAll(":scope > .tabbed-labels > label");
    const blocks = set.querySelectorAll(":scope > .tabbed-content > .tabbed-block");
    for (const [n, block] of blocks.entries()) block.prepend(replace(labels[n], "p", "summary"));
    set.replaceChildren(...[...blocks].flatMap((block) => [...block.childNodes]));
    set.className = "fold";
  }
  for (const summary of article.querySelectorAll("summary")) replace(summary, "p", "summary");
  for (const fold of article.querySelectorAll("details")) replace(fold, "div", "fold");
  for (const code of article.querySelectorAll("pre")) code.classList.toggle("few", code.textContent.split("\n").length < FEW);
  for (const table of article.querySelectorAll("figure.table")) table.classList.toggle("few", table.querySelectorAll("tr").length < FEW);
  for (const number of article.querySelectorAll("data")) replace(number, "span", number.className);
  for (const part of article.querySelectorAll("*")) {
    for (const { name } of [...part.attributes]) if (FOR_SCREENS.test(name)) part.removeAttribute(name);
    if (part.id) part.id = anchor(name, part.id);
  }
  for (const link of article.querySelectorAll("a[href]")) {
    const to = new URL(link.getAttribute("href"), address);
    const below = to.href.startsWith(root.href) && !to.search ? to.pathname.slice(root.pathname.length) : "/";
    const other = below.replace(/\/$/, "").replaceAll("/", "-") || (below ? "" : "index");
    const place = to.hash ? anchor(other, decodeURIComponent(to.hash.slice(1))) : other;
    link.setAttribute("href", names.includes(other) ? `#${place}` : to.href);
  }
  for (const form of article.querySelectorAll("form")) { // what it says as it opens, and where it stands
    const place = page.createElement("p"), link = page.createElement("a");
    link.href = link.textContent = address;
    place.append(`${form.ariaLabel} → `, link);
    form.querySelector(".planner-strip") ? form.append(place) : form.replaceChildren(place);
    replace(form, "div", "form");
  }
  article.className = "chapter";
  article.id = name;
  return article;
}

function replace(element, tag, kind = "") {
  const made = element.ownerDocument.createElement(tag);
  if (element.id) made.id = element.id;
  made.className = [...element.classList, kind].join(" ").trim();
  made.append(...element.childNodes);
  element.replaceWith(made);
  return made;
}

/* What gather() has found: a chapter each, with its element. */
let book = [];

/** What the front page says of the book, and its chapters. */
function begin(front) {
  const page = parse(front);
  book = chaptersOf(front);
  return {
    title: page.querySelector("h1").firstChild.textContent,
    description: page.querySelector("meta[name=description]").content,
    address: page.querySelector("link[rel=canonical]").href,
    device: page.querySelector("#device-choice option")?.textContent ?? "",
    chapters: book,
  };
}

/** Reads the chapters, and says which of their links lead into one of them and nowhere. */
function gather(pages) {
  const names = book.map(({ name }) => name);
  for (const [n, entry] of book.entries()) entry.element = chapterOf(pages[n], entry, names);
  const ids = new Set(book.flatMap(({ element }) => [element.id, ...[...element.querySelectorAll("[id]")].map(({ id }) => id)]));
  return book.flatMap(({ path, element }) => {
    const lost = [...element.querySelectorAll('a[href^="#"]')].filter((link) => !ids.has(link.getAttribute("href").slice(1)));
    return lost.map((link) => [path, link.outerHTML]);
  });
}

const sectionsOf = (element) => [...element.querySelectorAll("h2[id]")].map(({ id, textContent }) => ({ id, title: textContent }));

/** Each chapter as an XHTML file of its own. */
function files() {
  return book.map(({ name, title, part, element }) => {
    const copy = element.cloneNode(true);
    for (const link of copy.querySelectorAll('a[href^="#"]')) {
      const to = link.getAttribute("href").slice(1);
      link.setAttribute("href", `${to.split(".")[0]}.xhtml#${to}`);
    }
    return { name, title, part, sections: sectionsOf(element), xhtml: new XMLSerializer().serializeToString(copy) };
  });
}

/** All chapters in this document, each with its name at the head of its pages, and where they begin in the contents. */
function lay() {
  const style = document.head.appendChild(document.createElement("style"));
  const contents = document.querySelector(".contents");
  let part = "";
  for (const [n, { name, title, part: its, element }] of book.entries()) {
    const sections = sectionsOf(element);
    element.querySelector("h1").className = "chapter-title";
    for (const heading of element.querySelectorAll("h2")) heading.className = "section-title";
    for (const level of its ? [4, 3, 2, 1] : []) { // below the part's
      for (const heading of element.querySelectorAll(`h${level}`)) replace(heading, `h${level + 1}`);
    }
    if (its !== part) {
      const heading = element.ownerDocument.createElement("h1");
      heading.className = "part";
      heading.textContent = part = its;
      contents.insertAdjacentHTML("beforeend", "<p class=part></p>");
      contents.lastChild.textContent = its;
      element.prepend(heading);
    }
    element.style.page = `chapter-${n}`;
    style.append(`@page chapter-${n} { @top-center { content: ${JSON.stringify(title)}; } }\n`);
    enter(contents, "chapter-entry", name, title);
    for (const section of sections) enter(contents, "section-entry", section.id, section.title);
    document.body.append(element);
  }
}

function enter(contents, kind, id, title) {
  const link = contents.appendChild(document.createElement("a"));
  link.className = kind;
  link.href = `#${id}`;
  const [words, number] = [link.appendChild(document.createElement("span")), link.appendChild(document.createElement("b"))];
  words.textContent = title;
  number.textContent = "000"; // until the pages are known
}

function number(pages) {
  for (const link of document.querySelectorAll(".contents a")) link.lastChild.textContent = pages[link.hash.slice(1)];
}

/** What is seen of a kind. */
function count(kind) {
  return [...document.querySelectorAll(kind)].filter((element) => element.getClientRects().length).length;
}

/** The title page, and the contents that lay() fills. */
function open_with({ title, description, contents, device, online, address, licence, date }) {
  const page = document.body.appendChild(document.createElement("section"));
  page.className = "title-page";
  const say = (tag, text) => page.appendChild(document.createElement(tag)).textContent = text;
  say("h1", title);
  say("p", description);
  const about = page.appendChild(document.createElement("footer"));
  about.append(`${date} · ${licence}`, document.createElement("br"), device, document.createElement("br"), `${online} `);
  const link = about.appendChild(document.createElement("a"));
  link.href = link.textContent = address;
  const list = document.body.appendChild(document.createElement("nav"));
  list.className = "contents";
  list.appendChild(document.createElement("h1")).textContent = contents;
}
