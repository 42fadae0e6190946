// Markdown as nodes. What a model writes is not trusted: markup in it is shown as text, images become links, so that
// looking at an answer fetches nothing, and the sanitiser leaves the tags below and links to other sites.

const CLEAN = {
  RETURN_DOM_FRAGMENT: true,
  ALLOWED_TAGS: ["p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"],
  ALLOWED_ATTR: ["href", "title", "align", "start"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
};
const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
const markdown = new marked.Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text, block }) => (block ? `<p>${escaped(text.trim()).replaceAll("\n", "<br>")}</p>` : escaped(text)),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

function nodeOf(block) {
  const node = element("div", undefined, "block");
  node.append(DOMPurify.sanitize(markdown.parser([block]), CLEAN));
  for (const link of node.querySelectorAll("a")) Object.assign(link, { target: "_blank", rel: "noopener noreferrer nofollow" });
  for (const code of node.querySelectorAll("pre")) code.before(codeHead(code, block));
  for (const table of node.querySelectorAll("table")) {
    const frame = element("div", undefined, "table-frame");
    table.replaceWith(frame);
    frame.append(table);
  }
  return node;
}

function codeHead(code, block) {
  const head = element("div", undefined, "code-head");
  head.append(element("span", block.lang || "code"), copyButton(() => code.textContent));
  return head;
}

// Shows a text that grows: only blocks that have changed are made again, so that a selection in the others stays.
function markdownWriter(box) {
  const shown = []; // {raw, node}
  let last = null;
  return (text) => {
    if (text === last) return;
    last = text;
    let blocks;
    try { blocks = markdown.lexer(text).filter((block) => block.type !== "space"); } catch { blocks = [{ type: "text", raw: text, text }]; }
    blocks.forEach((block, index) => {
      if (shown[index]?.raw === block.raw) return;
      const node = nodeOf(block);
      if (shown[index]) shown[index].node.replaceWith(node); else box.append(node);
      shown[index] = { raw: block.raw, node };
    });
    for (const { node } of shown.splice(blocks.length)) node.remove();
  };
}
