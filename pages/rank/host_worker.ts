/**
 * A page's rank: its connection to the cluster, in a worker, as a worker's timers go on while the page is hidden. Its GPU work is done
 * in a worker of its own below this one.
 */
import { SplitkvError } from '../../src/base/errors.js';
import { hostRank, type RankHost } from '../../src/cluster/ranks/rank_host.js';
import { namedAdapter } from '../../src/engine/planning/rank_adapters.js';
import type { HostCommand, HostReport, JoinRequest } from './host_protocol.js';

const scope = globalThis as unknown as Worker;
const tell = (report: HostReport): void => scope.postMessage(report);
const leaving = new AbortController();
let host: Promise<RankHost> | undefined;

async function join({ cluster, name, adapter, memory }: JoinRequest): Promise<RankHost> {
  const joined = await hostRank({
    cluster: { ...cluster, signal: leaving.signal },
    name,
    adapter: adapter === '' ? {} : namedAdapter(adapter),
    memory,
    changed: (state) => tell({ type: 'state', state }),
  });
  const { adapter: found, version } = joined.card;
  tell({ type: 'joined', rank: { name, adapter: found.name, software: found.software, version } });
  return joined;
}

async function leave(): Promise<void> {
  leaving.abort();
  await (await host?.catch(() => undefined))?.close();
  tell({ type: 'left' });
}

scope.onmessage = ({ data }) => {
  const command = data as HostCommand;
  if (command.type === 'leave') return void leave();
  host = join(command.request);
  host.catch((error: unknown) => {
    const code = error instanceof SplitkvError ? error.code : 'internal';
    tell({ type: 'failed', code, message: error instanceof Error ? error.message : String(error) });
  });
};
