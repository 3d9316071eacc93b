import { codeOf, messageOf } from '../../src/base/errors.js';
import type { RankHost } from '../../src/index.js';
import type { HostCommand, HostReport, JoinRequest } from './host_protocol.js';

/** A rank that joins by an invitation, with the face of host_worker.ts: workers have no WebRTC. */
export class PeerHost {
  onmessage: (event: { readonly data: HostReport }) => void = () => {};
  onerror: unknown;
  readonly #leaving = new AbortController();
  #host: Promise<RankHost> | undefined;

  postMessage(command: HostCommand): void {
    if (command.type === 'leave') return void this.#leave();
    this.#host = this.#join(command.request);
    this.#host.catch((error: unknown) =>
      this.#tell({ type: 'failed', code: codeOf(error), message: messageOf(error) }),
    );
  }

  terminate(): void {
    this.#leaving.abort();
  }

  async #join({ invitation = '', relay, name, adapter, memory }: JoinRequest): Promise<RankHost> {
    // The whole library: whoever joins a server has it in the worker.
    const { joinPeer } = await import('../../src/index.js');
    const host = await joinPeer(invitation, {
      name,
      ...(adapter !== '' && { adapter }),
      ...(memory !== undefined && { memory }),
      ...(relay !== undefined && { relay }),
      signal: this.#leaving.signal,
      changed: (state) => this.#tell({ type: 'state', state }),
      answered: (text) => this.#tell({ type: 'answered', text }),
      confirm: (asks) => new Promise((decide) => this.#tell({ type: 'asks', asks, decide })),
    });
    const { adapter: found, version } = host.card;
    this.#tell({ type: 'joined', rank: { name, adapter: found.name, software: found.software, version } });
    return host;
  }

  async #leave(): Promise<void> {
    this.#leaving.abort();
    await (await this.#host?.catch(() => undefined))?.close();
    this.#tell({ type: 'left' });
  }

  #tell(data: HostReport): void {
    this.onmessage({ data });
  }
}
