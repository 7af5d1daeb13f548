/* What the form's script asks for a model that it does not know: the answer with its words, or why there is none; and,
   of a training, what recomputing saves. */
export default function* (fields) {
  try {
    yield { said: answer_any(fields), words: WORDS };
  } catch ({ message }) {
    yield { error: message };
    return;
  }
  const more = fields.get("task") === "train" && recomputing_any(fields);
  if (more) yield { more };
};
