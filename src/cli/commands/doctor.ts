import { type Command, commonOptions } from '../command.js';
import { machineFacts } from '../doctor/facts.js';
import { choiceOf, type Finding, findings } from '../doctor/findings.js';
import { plain, type Style } from '../terminal/style.js';
import { adapterText, nodeAdapters } from './adapters.js';

export const command: Command = {
  summary:
    'Looks whether this machine is ready: adapters with their drivers, features and limits, which would be taken and why, and what is ' +
    'missing, with the command that installs it. Opens no device and downloads nothing. Exits with 1 where no model could run in Node.',
  usage: 'doctor [--json]',
  options: commonOptions,
  async run(options, terminal) {
    const facts = await machineFacts(nodeAdapters);
    const found = findings(facts);
    const choice = choiceOf(facts.adapters);
    if (options.has('json')) {
      await terminal.write(`${JSON.stringify(documentOf(facts, found, choice))}\n`);
    } else {
      const { out: style } = terminal.style ?? { out: plain };
      await terminal.write(
        [
          ...found.map((finding) => line(finding, style)),
          '',
          ...facts.adapters.map((each) => adapterText(each, style)),
          '',
        ].join('\n'),
      );
    }
    return found.some(({ level }) => level === 'bad') ? 1 : 0;
  },
};

/** Names are stable: other tools read them. */
const documentOf = (
  { hub, dawn, memory, chrome, ...rest }: Awaited<ReturnType<typeof machineFacts>>,
  found: readonly Finding[],
  choice: ReturnType<typeof choiceOf>,
): object => ({
  ready: found.every(({ level }) => level !== 'bad'),
  splitkv: rest.splitkv,
  node: rest.node,
  platform: rest.platform,
  arch: rest.arch,
  memory_bytes: memory,
  adapters: rest.adapters,
  chosen: choice ?? null,
  no_webgpu: dawn ?? null,
  gpu_files: rest.gpuFiles,
  chrome: chrome.path ?? null,
  playwright: rest.playwright,
  hub: {
    cache: hub.cache,
    models: hub.models,
    free_bytes: hub.freeBytes ?? null,
    signed_in: hub.signedIn,
    offline: hub.offline,
  },
  findings: found,
});

const MARKS = { ok: ['green', '✓'], warn: ['yellow', '!'], bad: ['red', '✗'] } as const;

function line({ level, topic, text, fix }: Finding, style: Style): string {
  const [colour, mark] = MARKS[level];
  const indent = ' '.repeat(TOPIC + 2);
  return `${style(colour, mark)} ${style('bold', topic.padEnd(TOPIC))}${text}${fix === undefined ? '' : `\n${indent}${style('cyan', fix)}`}`;
}

const TOPIC = 14;
