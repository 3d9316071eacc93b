import { expect, test } from 'vitest';
import { foreignCluster } from './foreign_model.js';

test.each([
  ['wss://pages.example', undefined],
  ['wss://pages.example/nats', undefined],
  ['wss://nats.example', 'nats.example'],
  // Another port is another program, perhaps somebody else's.
  ['wss://pages.example:4223', 'pages.example:4223'],
  ['wss://pages.example, ws://127.0.0.1:4223', '127.0.0.1:4223'],
  ['wss://pages.example@evil.example', 'evil.example'],
  ['//evil.example', '//evil.example'],
  ['no address', 'no address'],
])('a cluster at %s is asked about by name: %s', (servers, foreign) => {
  expect(foreignCluster(servers, 'pages.example')).toBe(foreign);
});
