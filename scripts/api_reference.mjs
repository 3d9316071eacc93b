/**
 * The reference of the package, of the types that it exports and the guides in docs/, as pages that look like the site's others. By
 * TypeDoc, which reads TypeScript by the compiler's JavaScript API: TypeScript 7 has none, so it gets TypeScript 5.
 */
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire, register } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { root } from './setup.mjs';
import { ENTRIES } from './entries.mjs';

const typescript = pathToFileURL(
  createRequire(join(root, 'scripts/typescript5/package.json')).resolve('typescript'),
).href;
register(
  `data:text/javascript,${encodeURIComponent(
    `export const resolve = (name, context, next) => name === 'typescript' && context.parentURL?.includes('/typedoc/')
      ? { url: '${typescript}', format: 'commonjs', shortCircuit: true } : next(name, context);`,
  )}`,
);

/**
 * @param out the folder, made anew
 * @param site of pages/shared/pages.ts: what links to the site's pages, a folder above, and the mark in a tab
 * @throws Error where TypeDoc finds something wrong
 */
export async function buildApiReference(out, { navigation, mark }) {
  const { Application, JSX } = await import('typedoc');
  const guides = readdirSync(join(root, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`);
  const app = await Application.bootstrap({
    name: 'splitkv',
    entryPoints: Object.values(ENTRIES).map((file) => join(root, file)),
    tsconfig: join(root, 'tsconfig.types.json'),
    // Checked by `npm test`, with the TypeScript that the source is written for.
    skipErrorChecking: true,
    readme: join(root, 'README.md'),
    projectDocuments: [...guides, 'CONTRIBUTING.md'].map((path) => join(root, path)),
    customCss: join(root, 'scripts/api_reference.css'),
    // 'CHANGELOG.md' is no site.
    markdownItOptions: { html: true, linkify: false },
    logLevel: 'Error',
    disableGit: true,
    disableSources: true,
    excludePrivate: true,
    excludeProtected: true,
    includeVersion: true,
    searchInDocuments: true,
    highlightLanguages: ['typescript', 'javascript', 'jsx', 'html', 'css', 'json', 'bash', 'shell', 'yaml'],
    navigation: { includeCategories: false, includeGroups: false },
    validation: { notExported: false, invalidLink: true, invalidPath: true },
  });
  app.renderer.hooks.on('head.begin', () => [
    JSX.createElement('meta', { name: 'color-scheme', content: 'light dark' }),
    JSX.createElement('link', { rel: 'icon', href: mark }),
  ]);
  app.renderer.hooks.on('body.begin', (context) =>
    JSX.createElement(JSX.Raw, {
      html: navigation('api/index.html', (address) => context.relativeURL(`../${address}`)),
    }),
  );
  const project = await app.convert();
  if (!project) throw new Error('the API reference: TypeDoc could not read the types');
  for (const module of project.children ?? []) {
    const [name] = Object.entries(ENTRIES).find(([, file]) => moduleOf(file) === module.name) ?? [];
    if (name) module.name = name;
  }
  // Once every page has its address, which is that of the guide's file.
  app.renderer.on('beginRender', () => groupGuides(project));
  await app.generateDocs(project, out);
  // TypeDoc takes one stylesheet: the links between the pages look as on the others.
  const styles = join(out, 'assets/custom.css');
  const links = readFileSync(join(root, 'pages/site/nav.css'), 'utf8');
  writeFileSync(styles, links + readFileSync(styles, 'utf8'));
  if (app.logger.hasErrors()) throw new Error('the API reference: TypeDoc found errors, see above');
  linkPages(out);
}

/** Guides stand in docs/README.md's groups and order, by their titles. */
function groupGuides(project) {
  let group = '';
  const order = [];
  for (const line of readFileSync(join(root, 'docs/README.md'), 'utf8').split('\n')) {
    group = /^## (.*)/.exec(line)?.[1] ?? group;
    const [, path] = /^- \[[^\]]*\]\(([^)]*)\.md\)/.exec(line) ?? [];
    if (path !== undefined) order.push([group, join('docs', path)]);
  }
  const places = new Map();
  for (const document of project.documents ?? []) {
    const at = order.findIndex(([, path]) => path === document.name);
    const [title] = document.content.flatMap(({ text }) => /^# (.*)/m.exec(text)?.slice(1) ?? []);
    document.name = at >= 0 ? `${order[at][0]}/${title}` : title;
    places.set(document, at);
  }
  const placeOf = (of) => places.get(of) ?? order.length;
  project.documents?.sort((a, b) => placeOf(a) - placeOf(b));
  project.childrenIncludingDocuments?.sort((a, b) => placeOf(a) - placeOf(b));
}

/** Guides link to the source of the site's pages, which TypeDoc copies: they get the pages instead. Parts of a page are told to screen readers. */
function linkPages(out) {
  const media = join(out, 'media');
  const copied = readdirSync(media).filter((name) => name.endsWith('.html'));
  for (const name of copied) rmSync(join(media, name));
  for (const path of readdirSync(out, { recursive: true }).filter((name) => name.endsWith('.html'))) {
    const file = join(out, path);
    const text = readFileSync(file, 'utf8');
    const linked = text
      .replaceAll(/href="((?:\.\.\/)*)media\/(\w+\.html)"/g, 'href="$1../$2"')
      .replace('<div class="col-content">', '<div class="col-content" role="main">')
      .replace('<div class="page-menu">', '<div class="page-menu" role="complementary" aria-label="On this page">');
    if (linked !== text) writeFileSync(file, linked);
  }
}

/** The name that TypeDoc gives a file's module: its path below src/, without its ending. */
const moduleOf = (file) => file.replace(/^src\//, '').replace(/(\/index)?\.ts$/, '');
