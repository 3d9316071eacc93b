import { parentPort } from 'node:worker_threads';
import { type Device, openDevice } from '../../gpu/index.js';
import type { Communicator } from '../communicator.js';
import { createPortCommunicator } from '../ports/port_transport.js';
import { type ProgramArgs, type ProgramName, runProgram } from './programs.js';
import type { WorkerAnswer, WorkerCommand } from './worker_messages.js';

/** A rank in a worker thread: does what the commands say, one at a time. */
const port = parentPort!;
let device: Device | undefined;
let comm: Communicator | undefined;
let held = 0;

async function obey(command: WorkerCommand): Promise<unknown> {
  switch (command.type) {
    case 'open': {
      const { rank, worldSize, ports, adapterName, timeoutMs, sharedMemory } = command;
      if (!device || device.isLost) device = await openDevice({ adapterName });
      held = device.usage.buffers;
      comm = createPortCommunicator({
        rank,
        worldSize,
        device,
        ports,
        sharedMemory,
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
      });
      return undefined;
    }
    case 'run':
      return runProgram(comm!, command.name, command.args as ProgramArgs<ProgramName>);
    case 'close':
      comm?.dispose();
      return device ? device.usage.buffers - held : 0;
  }
}

port.on('message', (command: WorkerCommand) => {
  obey(command).then(
    (result) => port.postMessage({ result } satisfies WorkerAnswer),
    (error: unknown) => {
      port.postMessage({
        error: error instanceof Error ? (error.stack ?? error.message) : String(error),
      } satisfies WorkerAnswer);
    },
  );
});
