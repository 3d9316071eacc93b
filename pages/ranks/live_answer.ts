import type { GenerateResult, Model } from '../../src/index.js';
import type { RankPanel } from './rank_panel.js';

/** Draws an answer on the ranks while it is written, once a frame at most: drawing takes time from software adapters. */
export class LiveAnswer {
  #tokens = 0;
  #firstAt = 0;
  #frame: number | undefined;

  /** @param promptTokens as far as the page knows: a chat template adds some that only the result tells */
  constructor(
    private readonly panel: RankPanel,
    private readonly model: Model,
    private readonly promptTokens: number,
  ) {
    panel.showSequence({ tokens: promptTokens, phase: 'reading' });
  }

  /** A token has come. */
  token(): void {
    if (this.#tokens++ === 0) this.#firstAt = performance.now();
    this.#frame ??= requestAnimationFrame(() => this.#draw());
  }

  #draw(): void {
    this.#frame = undefined;
    const seconds = (performance.now() - this.#firstAt) / 1000;
    this.panel.showSequence({ tokens: this.promptTokens + this.#tokens, phase: 'writing' });
    this.panel.showStats(this.model.stats(), { tokens: this.#tokens, seconds });
  }

  /** @param result undefined when the answer failed */
  end(result: GenerateResult | undefined): void {
    if (this.#frame !== undefined) cancelAnimationFrame(this.#frame);
    const tokens = result ? result.prompt_tokens + result.tokens.length : 0;
    this.panel.showSequence({ tokens, phase: 'ended' });
    this.panel.showStats(result?.stats ?? this.model.stats());
  }
}
