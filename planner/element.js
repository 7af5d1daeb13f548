const called = (option) => (option.hasAttribute("value") ? option.value : option.text.toLowerCase().replaceAll(" ", "-").replace("gpt-2", "gpt2")); // a model by the library
const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) value != null && made.setAttribute(key, value);
  made.append(...children.filter((child) => child != null));
  return made;
};
