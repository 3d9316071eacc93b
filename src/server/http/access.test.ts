import type { IncomingMessage, ServerResponse } from 'node:http';
import { expect, test } from 'vitest';
import { Access, hostCheck } from './access.js';

/** What asks from a host, or from an origin, is told; undefined: it may. */
function told(localApps: boolean, { host, origin }: { host?: string; origin?: string }): string | undefined {
  const headers = { ...(host !== undefined && { host }), ...(origin !== undefined && { origin }) };
  const request = { headers, headersDistinct: {} } as IncomingMessage;
  try {
    if (origin === undefined) hostCheck(undefined, '127.0.0.1', localApps)(request);
    else new Access([], [], [], localApps).checkOrigin(request, { setHeader: () => {} } as unknown as ServerResponse);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

test.each([
  'host.docker.internal:8000',
  'host.containers.internal',
  '0.0.0.0:8000',
  '192.168.1.20:8000',
  'nas.local',
  'nas',
])('host %s is refused, which names both options, and allowed with local apps', (host) => {
  const name = host.replace(/:.*/, '');
  expect(told(false, { host })).toMatch(new RegExp(`--allowed-host ${name} or --allow-local-apps$`));
  expect(told(true, { host })).toBeUndefined();
});

test.each([
  'app://obsidian.md',
  'tauri://localhost',
  'http://tauri.localhost',
  'vscode-webview://1abc',
  'chrome-extension://abcdef',
  'http://localhost:3000',
])('origin %s is refused, which names both options, and allowed with local apps', (origin) => {
  expect(told(false, { origin })).toMatch(new RegExp(`--allow-origin ${origin} or --allow-local-apps$`));
  expect(told(true, { origin })).toBeUndefined();
});

test('pages and names of the internet stay out', () => {
  for (const origin of ['https://a.example', 'null', 'http://localhost.a.example', 'http://a.example/app://x']) {
    expect(told(true, { origin })).toMatch(/--allow-origin \S+$/);
  }
  for (const host of ['a.example', '127.0.0.1.a.example', 'host.docker.internal.a.example', 'local.example:80']) {
    expect(told(true, { host })).toMatch(/--allowed-host \S+$/);
  }
  expect(told(true, { host: '' })).toContain("--allowed-host '*'");
});
