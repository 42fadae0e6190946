// JSON that comes in pieces.

function isJson(text) {
  try { JSON.parse(text); } catch { return false; }
  return true;
}

// With line breaks and indents, also where it is not whole yet; what is inside strings stays as it is.
function indented(text) {
  let depth = 0, isString = false, isEscaped = false, isOpened = false;
  const line = () => "\n" + "  ".repeat(depth);
  const one = (sign) => {
    if (isString) {
      isString = isEscaped || sign !== '"';
      isEscaped = sign === "\\" && !isEscaped;
      return sign;
    }
    if (/\s/.test(sign)) return "";
    const isClosing = sign === "}" || sign === "]", wasOpened = isOpened;
    if (isClosing) depth -= 1;
    const lead = isClosing !== wasOpened ? line() : ""; // an empty object or list stays in its line
    isOpened = sign === "{" || sign === "[";
    if (isOpened) depth += 1;
    isString = sign === '"';
    return lead + sign + (sign === "," ? line() : sign === ":" ? " " : "");
  };
  return Array.from(text, one).join("");
}
