/* What the form's script asks for a model that it does not know, and for what is served: the answer with its words, or why
   there is none. */
export default function (fields) {
  try {
    return { said: answer_any(fields), words: WORDS };
  } catch ({ message }) {
    return { error: message };
  }
};
export const meters = async () => {
  const { metered_any: metered, listed_any: listed, recomputing_any: recomputing } = (await import("./planner-stacks-meters.js")).default(shared);
  return { metered, listed, recomputing };
};
