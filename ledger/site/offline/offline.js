/* A page that was opened from a folder may run scripts, and read nothing: no modules, no workers, no fetch, no import. So
   each file that scripts ask for lies there once more as a script, under its name with .js behind it, which says what it holds. */
(() => {
  const told = new Map(), asked = new Map();
  window.offline = (text) => told.set(document.currentScript.src, text);

  const read = (address) => {
    const place = `${new URL(address, location)}.js`;
    if (!asked.has(place)) asked.set(place, new Promise((found, lost) => {
      const script = Object.assign(document.createElement("script"), { src: place, onload: () => found(told.get(place)) });
      script.onerror = () => lost(new TypeError(`${place} is not there`));
      document.head.append(script);
    }));
    return asked.get(place);
  };

  window.fetch = async (address) => new Response(await read(address));

  const module = (text) => `data:text/javascript;charset=utf-8,${encodeURIComponent(text)}`;
  window.load = async (address) => import(module(await read(new URL(address, load.base))));
  load.base = document.currentScript.src;

  /* A worker brings along the modules that it may import, and those that they may, and is none itself. */
  const Started = Worker;
  const work = async (address, how) => {
    const modules = {}, gather = async (text) => {
      for (const [, name] of text.matchAll(/\bload\("([^"]+)"\)/g)) if (!modules[name]) modules[name] = module(await gather(await read(new URL(name, load.base))));
      return text;
    };
    const text = await gather(await read(address));
    const parts = [`const load=((modules)=>(name)=>import(modules[name]))(${JSON.stringify(modules)});`, text];
    return new Started(URL.createObjectURL(new Blob(parts, { type: "text/javascript" })), { name: how?.name });
  };
  window.Worker = class {
    #started;
    constructor(address, how) {
      this.#started = work(address, how).then((worker) => {
        worker.onmessage = (event) => this.onmessage(event);
        return worker;
      });
    }
    postMessage(message) { this.#started.then((worker) => worker.postMessage(message)) }
    terminate() { this.#started.then((worker) => worker.terminate()) }
  };

  /* Links that scripts make lead to folders, where a server would show the page that lies in them. */
  const lead = ({ target }) => {
    const link = target.closest?.("a[href]");
    if (link?.protocol === "file:" && link.pathname.endsWith("/")) link.pathname += "index.html";
  };
  for (const kind of ["pointerdown", "focusin", "click"]) addEventListener(kind, lead, true);
})();
