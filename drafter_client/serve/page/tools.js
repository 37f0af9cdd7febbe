// What the model may call, and the form that its answer keeps to: fields on the page, and the members of a request.

import { make } from "./dom.js";

const CHOICES = [
  ["", "auto: as the target likes"],
  ["none", "none: no call"],
  ["required", "required: some call"],
];
const FORMS = [
  ["", "text"],
  ["json_object", "any JSON object"],
  ["json_schema", "JSON that fits a schema"],
];
const EXAMPLE = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather in a town",
      parameters: { type: "object", properties: { town: { type: "string" } }, required: ["town"], additionalProperties: false },
    },
  },
];

// The value of a JSON text. Raises a SyntaxError in words, with the line.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    const at = Number(/position (\d+)/.exec(error.message)?.[1] ?? Number.NaN);
    const where = Number.isNaN(at) ? "" : ` in line ${text.slice(0, at).split("\n").length}`;
    throw new SyntaxError(`This is no JSON${where}: ${error.message}`);
  }
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// The tools that a text defines. Raises a SyntaxError that says what is wrong with it.
export function toolsOf(text) {
  if (!text?.trim()) return [];
  const tools = parsed(text);
  if (!Array.isArray(tools)) throw new SyntaxError("Tools are a list: begin with [ and end with ]");
  tools.forEach((tool, at) => {
    const name = `Tool ${at + 1}`;
    if (!isObject(tool) || tool.type !== "function") throw new SyntaxError(`${name} is none: it has no "type": "function"`);
    if (!isObject(tool.function)) throw new SyntaxError(`${name} has no object "function", which names it`);
    if (typeof tool.function.name !== "string" || !tool.function.name) throw new SyntaxError(`${name} has no "name" in its "function"`);
    const { parameters } = tool.function;
    if (parameters !== undefined && !isObject(parameters)) throw new SyntaxError(`The "parameters" of ${tool.function.name} are no JSON Schema`);
  });
  return tools;
}

function schemaOf(text) {
  if (!text?.trim()) throw new SyntaxError("A JSON Schema has to stand here");
  const schema = parsed(text);
  if (!isObject(schema)) throw new SyntaxError("A JSON Schema is an object: begin with { and end with }");
  return schema;
}

// The members of a request for what was given, `{tools, choice, form, schema}`, all texts. Raises a SyntaxError.
export function members({ tools = "", choice = "", form = "", schema = "" } = {}) {
  const found = {};
  const given = toolsOf(tools);
  if (given.length) {
    found.tools = given;
    if (choice) found.tool_choice = choice.startsWith("call ") ? { type: "function", function: { name: choice.slice(5) } } : choice;
  }
  if (form === "json_object") found.response_format = { type: form };
  if (form === "json_schema") found.response_format = { type: form, json_schema: { name: "answer", schema: schemaOf(schema) } };
  return found;
}

// Fill `root` with fields for `given`, which they change; `changed` is called after each change.
export function show(root, given, changed) {
  const take = (name, value) => {
    if (value) given[name] = value;
    else delete given[name];
    changed();
  };
  const options = (known) => known.map(([value, text]) => make("option", { value }, text));
  const choice = make("select", { id: "tool_choice" });
  const offer = () => {
    const named = names(given.tools).map((each) => [`call ${each}`, `${each}: it must be called`]);
    choice.replaceChildren(...options([...CHOICES, ...named]));
    choice.value = given.choice ?? "";
    if (choice.selectedIndex < 0) choice.value = ""; // the tool is there no more
    if ((given.choice ?? "") !== choice.value) take("choice", choice.value);
  };
  choice.addEventListener("change", () => take("choice", choice.value));
  const tools = checked("tools", "Tools, as OpenAI's API defines them", toolsOf, given.tools, (text) => {
    take("tools", text);
    if (isGood(toolsOf, text)) offer();
  });
  const example = make("button", { type: "button" }, "Example");
  example.addEventListener("click", () => {
    tools.field.value = JSON.stringify(EXAMPLE, null, 2);
    tools.field.dispatchEvent(new Event("input"));
    tools.field.focus();
  });
  const schema = checked("schema", "JSON Schema of the answer", schemaOf, given.schema, (text) => take("schema", text));
  const form = make("select", { id: "form" }, ...options(FORMS));
  form.value = given.form ?? "";
  const showSchema = () => {
    schema.node.hidden = form.value !== "json_schema";
    if (!schema.node.hidden) schema.check();
  };
  form.addEventListener("change", () => {
    take("form", form.value);
    showSchema();
  });
  root.replaceChildren(
    tools.node,
    make("div", { className: "row" }, example),
    make("label", {}, "Tool choice", choice),
    make("label", {}, "Answer", form),
    schema.node,
  );
  offer();
  showSchema();
}

function isGood(read, text) {
  try {
    read(text);
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

function names(tools) {
  return isGood(toolsOf, tools) ? toolsOf(tools).map((each) => each.function.name) : [];
}

// A field for JSON, which says at once what is wrong with it: `{node, field, check}`.
function checked(id, text, read, value, changed) {
  const said = make("p", { id: `${id}-problem`, className: "problem", "aria-live": "polite" });
  const field = make("textarea", { id, rows: 6, spellcheck: false, value: value ?? "", "aria-describedby": said.id });
  const check = () => {
    let problem = "";
    try {
      read(field.value);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      problem = error.message;
    }
    field.setAttribute("aria-invalid", String(problem !== ""));
    said.textContent = problem;
  };
  field.addEventListener("input", () => {
    check();
    changed(field.value);
  });
  if (field.value) check();
  return { node: make("div", { className: "wide" }, make("label", {}, text, field), said), field, check };
}
