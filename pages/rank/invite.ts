import { type Invitation, type LoadOptions, openPeers, type Peers } from '../../src/index.js';
import { messageOf } from '../../src/base/errors.js';
import { count } from '../../src/base/lists.js';
import { copyOnClick } from '../shared/copy.js';
import { element } from '../shared/elements.js';
import { askCode } from '../shared/peer_code.js';

const button = element('invite', HTMLButtonElement);
const status = element('peers-status', HTMLParagraphElement);
const part = element('invitation', HTMLDivElement);
const link = element('invitation-link', HTMLAnchorElement);
const code = element('invitation-code', HTMLDivElement);
const answer = element('peer-answer', HTMLTextAreaElement);
const codePart = element('code-part', HTMLDivElement);
const mixed = element('mixed', HTMLInputElement);

/** Invites a tab at each press, and has the model loaded on all that came. @param open loads it */
export function inviteTabs(open: (ranks: Pick<LoadOptions, 'cluster' | 'ranks'>) => Promise<void>): void {
  let peers: Promise<Peers> | undefined;
  let invitation: Invitation | undefined;
  const say = (line: string): void => void (status.textContent = line);
  const invite = async (): Promise<void> => {
    button.disabled = true;
    let failure = 'Nobody joined';
    say('Making an invitation…');
    try {
      peers ??= openPeers({ confirm: (asks) => askCode(codePart, asks) });
      invitation = await (await peers).invite();
      link.href = new URL(`rank.html#peer=${invitation.text}`, document.baseURI).href;
      const { renderSVG } = await import('uqr');
      code.innerHTML = renderSVG(link.href);
      answer.value = '';
      part.hidden = false;
      say('It is for one tab: open its link there, and keep both open.');
      const name = await invitation.joined;
      say(`${name} joined: the model is loaded on both.`);
      part.hidden = true;
      failure = `${name} joined, but the model isn't loaded on both`;
      const all = await peers;
      await open({ ranks: all.names, cluster: { peers: all, mixed: mixed.checked } });
      say(`${count(all.names.length, 'rank')}: ${all.names.join(', ')}.`);
    } catch (error) {
      if (!invitation) peers = undefined;
      say(`${failure}: ${messageOf(error)}.`);
    } finally {
      codePart.replaceChildren();
      part.hidden = true;
      button.disabled = false;
    }
  };
  button.addEventListener('click', () => void invite());
  copyOnClick(element('copy-invitation', HTMLButtonElement), () => link.href);
  answer.addEventListener('input', () => {
    invitation?.accept(answer.value).then(
      () => say('The answer is there: the pages look for each other…'),
      (error: unknown) => say(`${messageOf(error)}.`),
    );
  });
}
