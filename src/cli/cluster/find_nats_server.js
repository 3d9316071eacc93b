/**
 * Where nats-server is. Plain JavaScript with no dependencies, because the set-up script uses it before any package is installed.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Folders where package managers put it, that a service's PATH may lack. */
const FOLDERS = ['/usr/sbin', '/usr/local/sbin', '/usr/local/bin', '/opt/homebrew/bin'];

/**
 * NATS_SERVER_PATH, else the first nats-server of PATH.
 * @param {readonly string[]} more places to look at last
 * @returns {string | undefined}
 */
export function findNatsServer(more = []) {
  const { env, platform } = process;
  const file = platform === 'win32' ? 'nats-server.exe' : 'nats-server';
  const folders = [...(env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== ''), ...FOLDERS];
  const places = [env['NATS_SERVER_PATH'], ...folders.map((folder) => join(folder, file)), ...more];
  return places.find(
    (place) => place !== undefined && existsSync(place) && spawnSync(place, ['--version']).status === 0,
  );
}
