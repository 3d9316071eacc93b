import list from '../../recipes/README.md?raw';
import { USUAL_MODEL } from './models.js';

/** A recipe of recipes/. */
export interface Example {
  readonly id: string;
  readonly title: string;
  readonly about: string;
  /** Its texts by the names of their files. */
  readonly files: Readonly<Record<string, string>>;
  /** How it runs in the gallery: its text in a frame, or a page of the site that has it; undefined: not in a page. */
  readonly live: 'text' | { readonly page: string } | undefined;
}

const texts = import.meta.glob<string>('../../recipes/*/*', { query: '?raw', import: 'default', eager: true });

/** What its README.md begins with is its title and what it does. */
function readExample(id: string): Example {
  const { 'README.md': readme = '', ...others } = Object.fromEntries(
    Object.entries(texts).flatMap(([path, text]) => {
      const [folder, name = ''] = path.split('/').slice(-2);
      return folder === id ? [[name, text]] : [];
    }),
  );
  const { 'index.html': page, ...more } = others;
  const [title = '', about = ''] = readme.split('\n\n');
  const isPage = page !== undefined && Object.keys(more).every((name) => name.endsWith('.html'));
  return {
    id,
    title: title.replace(/^# /, ''),
    about: about.replaceAll('\n', ' ').replaceAll('`', ''),
    files: page === undefined ? others : { 'index.html': page, ...more },
    // A component has to be compiled.
    live: id === 'react' ? { page: 'react_example.html' } : isPage ? 'text' : undefined,
  };
}

export const EXAMPLES: readonly Example[] = [...list.matchAll(/^- \[(\w+)\]/gm)].map(([, id]) => readExample(id!));

/** A text of an example with another model in it. */
export const withModel = (text: string, model: string): string => text.replaceAll(USUAL_MODEL, model);
