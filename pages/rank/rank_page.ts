/**
 * Room: the page on which a tab joins a cluster as a rank. This file is its form and what it shows; host_worker.ts is
 * the rank, in a worker, and peer_host.ts without one; rank_words.ts says what it is doing. invite.ts is of who invites.
 */
import { SplitkvError, usageError } from '../../src/base/errors.js';
import type { RankState } from '../../src/cluster/ranks/rank_host.js';
import { parseMemory } from '../../src/engine/contracts/options/read_texts.js';
import { listBrowserAdapters } from '../../src/app/shared/adapter_list.js';
import { make, pair } from '../../src/app/shared/dom.js';
import { element } from '../shared/elements.js';
import { copyOnClick } from '../shared/copy.js';
import { foreignCluster } from '../shared/foreign_model.js';
import { askCode } from '../shared/peer_code.js';
import type { HostCommand, HostReport, JoinedRank, JoinRequest } from './host_protocol.js';
import { PeerHost } from './peer_host.js';
import { heldText, PARAMETERS, stateText, stateWord, wrongParameters } from './rank_words.js';

/** A GPU that doesn't end what it has may keep the worker; it is then ended as it is. */
const LEAVE_MS = 5000;

const form = element('form', HTMLFormElement);
const field = (id: string): HTMLInputElement => element(id, HTMLInputElement);
const adapters = element('adapter', HTMLSelectElement);
const card = element('rank', HTMLElement);
const stateLine = element('state', HTMLParagraphElement);
const progress = element('progress', HTMLProgressElement);
const facts = element('facts', HTMLDListElement);
const errorCard = element('error', HTMLElement);
const foreign = element('foreign', HTMLParagraphElement);
const leaveButton = element('leave', HTMLButtonElement);
const answerPart = element('answer-part', HTMLElement);
const answerText = element('answer', HTMLParagraphElement);
const codePart = element('code-part', HTMLElement);
const otherWay = element('other-way', HTMLButtonElement);

/** This tab as a rank, from the moment it wants to join. */
class TabRank {
  readonly #worker: Worker | PeerHost;
  #joined: JoinedRank | undefined;
  #state: RankState = { connected: true };
  #over: (() => void) | undefined;
  #awake: Promise<WakeLockSentinel | undefined> | undefined;

  /** @param ended called once, with what went wrong, if anything did */
  constructor(
    readonly request: JoinRequest,
    readonly ended: (why?: string) => void,
  ) {
    this.#worker =
      request.invitation === undefined
        ? new Worker(new URL('./host_worker.ts', import.meta.url), { type: 'module', name: 'splitkv rank host' })
        : new PeerHost();
    this.#worker.onmessage = ({ data }: { data: unknown }) => this.#heard(data as HostReport);
    this.#worker.onerror = ({ message }: ErrorEvent) => this.#end(message || "the rank's worker can't be started");
    this.#post({ type: 'join', request });
    // Browsers freeze hidden pages after some minutes, but none that holds a lock.
    const over = new Promise<void>((resolve) => (this.#over = resolve));
    void navigator.locks?.request(`splitkv-rank-${crypto.randomUUID()}`, () => over);
    document.addEventListener('visibilitychange', this.#seen);
    this.#show();
  }

  /** Frees the GPU, and says so to the cluster. */
  leave(): void {
    this.#post({ type: 'leave' });
    stateLine.textContent = 'Leaving…';
    setTimeout(() => this.#end(), LEAVE_MS);
  }

  #post(command: HostCommand): void {
    this.#worker.postMessage(command);
  }

  #heard(report: HostReport): void {
    if (report.type === 'left') return this.#end();
    if (report.type === 'failed') return this.#end(report.message);
    if (report.type === 'answered') {
      answerText.textContent = report.text;
      answerPart.hidden = false;
      return;
    }
    answerPart.hidden = true;
    if (report.type === 'asks') return void askCode(codePart, report.asks).then(report.decide);
    if (report.type === 'joined') this.#joined = report.rank;
    else this.#state = report.state;
    if (this.#state.refused !== undefined) return this.#end(stateText(this.#state));
    this.#show();
    this.#stayAwake();
  }

  #end(why?: string): void {
    if (!this.#over) return;
    this.#over();
    this.#over = undefined;
    this.#worker.terminate();
    answerPart.hidden = true;
    codePart.replaceChildren();
    document.removeEventListener('visibilitychange', this.#seen);
    this.#state = { connected: false };
    this.#stayAwake();
    this.ended(why);
  }

  readonly #seen = (): void => {
    this.#stayAwake();
    this.#show();
  };

  /** While it is busy the screen stays on: a computer that sleeps is a rank that is gone. A browser may refuse, say on battery. */
  #stayAwake(): void {
    const isBusy = this.#state.serving !== undefined && document.visibilityState === 'visible';
    if (!isBusy) {
      void this.#awake?.then((lock) => lock?.release());
      this.#awake = undefined;
    } else this.#awake ??= navigator.wakeLock?.request('screen').catch(() => undefined);
  }

  #show(): void {
    const { cluster, name, invitation } = this.request;
    const joined = this.#joined;
    const word = joined ? stateWord(this.#state) : 'joining';
    const slow = invitation !== undefined && document.visibilityState === 'hidden' ? ', hidden: slower' : '';
    document.title = `${name} · ${word}${slow} · splitkv`;
    stateLine.textContent = joined ? stateText(this.#state) : 'Joining…';
    const { loadedBytes, totalBytes } = this.#state.serving ?? {};
    progress.hidden = totalBytes === undefined;
    if (totalBytes !== undefined && loadedBytes !== undefined) {
      progress.max = totalBytes;
      progress.value = loadedBytes;
    }
    facts.replaceChildren(
      pair('Name', name),
      invitation === undefined
        ? pair('Cluster', `${cluster.name ?? 'main'} at ${[cluster.servers ?? []].flat().join(', ')}`)
        : pair('Invited by', 'a page, without a server'),
      ...(joined
        ? [
            pair('GPU', joined.software ? `${joined.adapter}, which is the CPU: slowly` : joined.adapter),
            pair('splitkv', joined.version),
            pair('Holds', heldText(this.#state)),
          ]
        : []),
    );
  }
}

let tab: TabRank | undefined;

const isInvited = (): boolean => !element('by-invitation', HTMLElement).hidden;

/** What is asked of who joins a cluster, or of who was invited. */
function showFields(invited: boolean): void {
  element('by-invitation', HTMLElement).hidden = !invited;
  for (const label of form.querySelectorAll<HTMLElement>('.of-server')) label.hidden = invited;
  field('cluster').disabled = invited;
  field('invitation').disabled = !invited;
  otherWay.textContent = invited ? 'Join a NATS server instead' : 'Join by invitation';
}

/** An address may say where its invitation is kept. */
const relayOf = (text: string): string | undefined =>
  new URLSearchParams(text.includes('#') ? text.slice(text.indexOf('#') + 1) : text).get('relay') ?? undefined;

/** What the form says. @throws SplitkvError `usage` */
function readForm(): JoinRequest {
  const text = (id: string): string => field(id).value.trim();
  const [servers, clusterName, name, token, size] = ['cluster', 'cluster-name', 'name', 'token', 'memory'].map(
    text,
  ) as [string, string, string, string, string];
  const memory = size === '' ? undefined : parseMemory(size, `memory ${size}`);
  if (typeof memory === 'object') throw usageError(`memory ${size}: a rank has one size`);
  return {
    cluster: {
      servers: servers.split(',').map((server) => server.trim()),
      ...(clusterName !== '' && { name: clusterName }),
      ...(token !== '' && { token }),
    },
    ...(isInvited() && { invitation: text('invitation'), relay: relayOf(text('invitation')) }),
    name,
    adapter: adapters.value,
    ...(memory !== undefined && { memory }),
  };
}

function showProblem(problem: string | undefined): void {
  errorCard.hidden = problem === undefined;
  element('error-text', HTMLParagraphElement).textContent = problem ?? '';
}

function join(): void {
  showProblem(undefined);
  foreign.replaceChildren();
  try {
    const request = readForm();
    card.hidden = false;
    form.hidden = true;
    tab = new TabRank(request, (why) => {
      tab = undefined;
      card.hidden = true;
      form.hidden = false;
      document.title = 'Join · splitkv';
      showProblem(why);
      if (why === undefined) foreign.textContent = 'Left.';
      element('join', HTMLButtonElement).focus();
    });
    leaveButton.focus();
  } catch (error) {
    if (!(error instanceof SplitkvError)) throw error;
    showProblem(error.message);
  }
}

/** One choice for each GPU there is. */
async function offerAdapters(wanted: string | null): Promise<void> {
  adapters.replaceChildren(new Option("the browser's choice", ''));
  const found = await listBrowserAdapters();
  for (const { request, name, same_as: same } of found) {
    if (same === undefined || request === wanted) adapters.append(new Option(`${name} (${request})`, request));
  }
  if (wanted === null) return;
  if (![...adapters.options].some(({ value }) => value === wanted)) {
    throw usageError(`adapter=${wanted}: a browser has high-performance and low-power`);
  }
  adapters.value = wanted;
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  join();
});
// From here on a press of it is heard.
element('join', HTMLButtonElement).disabled = false;
leaveButton.addEventListener('click', () => tab?.leave());
otherWay.addEventListener('click', () => showFields(!isInvited()));
copyOnClick(element('copy-answer', HTMLButtonElement), () => answerText.textContent ?? '');
// A tab that closes says so, as far as it comes; otherwise its beats end.
addEventListener('pagehide', () => tab?.leave());

const query = new URLSearchParams(location.search);
for (const name of PARAMETERS) if (name !== 'adapter') field(name).value = query.get(name) ?? '';
field('name').value ||= `tab-${crypto.randomUUID().slice(0, 6)}`;
foreign.textContent = wrongParameters(query);
const cluster = query.get('cluster');
const host = cluster === null ? undefined : foreignCluster(cluster);
if (host !== undefined) {
  foreign.append(
    ' The address of this page names a cluster of another site, ',
    make('strong', '', host),
    '. Nothing was sent there yet. Join it if you trust who gave you the address.',
  );
}
/** Whoever has the link was invited; Join says yes. */
function readInvitation(): void {
  const invitation = new URLSearchParams(location.hash.slice(1));
  const text = invitation.get('peer');
  if (text === null || tab) return showFields(isInvited());
  field('invitation').value = location.href;
  showFields(true);
  const relay = invitation.get('relay');
  foreign.textContent = `A page invites this tab to be a rank of the model that it runs. It gives a part of the work to the GPU that you choose here, with no more memory than you allow. Nothing was sent to it yet${relay === null ? '' : `; joining asks ${relay}`}.`;
}
addEventListener('hashchange', readInvitation);
readInvitation();
offerAdapters(query.get('adapter')).then(
  () => {
    if (cluster !== null && host === undefined) join();
  },
  (error: unknown) => showProblem(error instanceof Error ? error.message : String(error)),
);
