/** llms.txt (llmstxt.org): what the documentation has, for language models that read it. Made of docs/README.md. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './setup.mjs';

const PAGES = 'https://github.com/splitkv/splitkv/blob/main/';

/** @returns {string} the index's sections, with whole addresses */
export function llmsText() {
  const index = readFileSync(join(root, 'docs/README.md'), 'utf8');
  const { description } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const sections = index.slice(index.indexOf('\n## ')).replaceAll(/\]\(([^):]+)\)/g, (_, link) => {
    const path = link.startsWith('../') ? link.slice(3) : `docs/${link}`;
    return `](${PAGES}${path})`;
  });
  return `# splitkv\n\n> ${description}\n${sections}`;
}
