import background from '../../examples/extension/background.js?raw';
import manifest from '../../examples/extension/manifest.json?raw';
import panel from '../../examples/extension/panel.html?raw';
import jsonAnswers from '../../examples/json_answers.html?raw';
import oneTag from '../../examples/one_tag.html?raw';
import assistant from '../../examples/react/Assistant.jsx?raw';
import twoRanks from '../../examples/two_ranks.html?raw';
import { USUAL_MODEL } from './models.js';

/** A way to embed a model. */
export interface Example {
  readonly id: string;
  readonly title: string;
  readonly about: string;
  /** Its texts by the names of their files. */
  readonly files: Readonly<Record<string, string>>;
  /** How it runs in the gallery: its text in a frame, or a page of the site that has it; undefined: not in a page. */
  readonly live: 'text' | { readonly page: string } | undefined;
  /** A question that shows what is special about it, with any model. */
  readonly try?: string;
}

export const EXAMPLES: readonly Example[] = [
  {
    id: 'one-tag',
    title: 'One tag',
    about: 'The whole chat: it tells what it would download, asks, loads, answers, and explains what goes wrong.',
    files: { 'index.html': oneTag },
    live: 'text',
  },
  {
    id: 'react',
    title: 'React',
    about: 'The same as a component, for React 18 and 19. Props are the attributes, events are functions.',
    files: { 'Assistant.jsx': assistant },
    live: { page: 'react_example.html' },
  },
  {
    id: 'extension',
    title: 'A browser extension',
    about:
      "A chat in Chrome's side panel. Put these files and the package's, in splitkv/, into a folder, and open it at " +
      'chrome://extensions with “Load unpacked”.',
    files: { 'manifest.json': manifest, 'panel.html': panel, 'background.js': background },
    live: undefined,
  },
  {
    id: 'two-ranks',
    title: 'Two ranks',
    about:
      'Half of every layer on each of two GPU devices, each in a worker of its own. A machine with one GPU gives both ' +
      'to it. The answers are the same, bit for bit.',
    files: { 'index.html': twoRanks },
    live: 'text',
  },
  {
    id: 'json-answers',
    title: 'JSON answers',
    about: 'Every answer fits a JSON schema, whatever the model would rather say: the page can use it as it is.',
    files: { 'index.html': jsonAnswers },
    live: 'text',
  },
];

/** A text of an example with another model in it. */
export const withModel = (text: string, model: string): string => text.replaceAll(USUAL_MODEL, model);
