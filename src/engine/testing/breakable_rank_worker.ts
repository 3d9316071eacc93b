/** A rank's worker that breaks on command. */
import { parentPort } from 'node:worker_threads';
import type { Port } from '../../distributed/index.js';
import { Device } from '../../gpu/index.js';
import { RankServer } from '../workers/serve_rank.js';
import type { WorkerCommand } from '../workers/worker_protocol.js';
import type { BreakCommand } from './breakable_ranks.js';

let gpu: GPUDevice | undefined;
const open = Device.open.bind(Device);
Device.open = async (...args) => {
  const device = await open(...args);
  gpu ??= device.gpu; // others are paper
  return device;
};

const port: Pick<Port, 'postMessage' | 'onmessage'> = {
  postMessage: (message, transfer) => parentPort!.postMessage(message, transfer as never[]),
  onmessage: null,
};
const rank = new RankServer(port, () => parentPort!.unref());
process.on('uncaughtException', (error) => rank.fail(error));

/** As soon as Dawn, which works in immediates, has nothing pending: it would abort the process. */
function exitWhenIdle(): void {
  if (process.getActiveResourcesInfo().includes('Immediate')) setTimeout(exitWhenIdle, 5);
  else process.exit(3);
}

let ending = false;
parentPort!.on('message', (data: BreakCommand | WorkerCommand) => {
  if (ending) return;
  if (data.type !== 'break') {
    port.onmessage!({ data } as MessageEvent);
  } else if (data.how === 'device') {
    gpu!.destroy();
  } else if (data.how === 'error') {
    gpu!.createBuffer({ size: 4, usage: 0 });
  } else if (data.how === 'exit') {
    ending = true;
    exitWhenIdle();
  } else {
    throw new Error('broken on purpose');
  }
});
