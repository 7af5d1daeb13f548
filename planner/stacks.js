/* What the form's script asks for a model that it does not know: the answer with its words, or why there is none. */
export default (fields) => {
  try {
    return { said: answer_any(fields), words: WORDS };
  } catch ({ message }) {
    return { error: message };
  }
};
