import type { Locator, Page } from '@playwright/test';
import { QUESTIONS, STORY } from '../../models/example.js';

/** A plain page with one script and the element: what a person who embeds it writes. */
export const chatPage = (attributes: string): string => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>A page</title>
<script type="module" src="lib/splitkv-chat.js"></script></head>
<body><main><h1>A page</h1><splitkv-chat model="models/tiny-gqa/" ranks="auto" about="${STORY}"
suggestions="${QUESTIONS.map(({ question }) => question).join('|')}" ${attributes}></splitkv-chat></main></body></html>`;

/** The parts of a chat as a person finds them. */
export const chatOf = (page: Page) => {
  const chat = page.locator('splitkv-chat');
  return {
    chat,
    status: chat.getByRole('status'),
    field: chat.getByRole('textbox', { name: 'Message' }),
    send: chat.getByRole('button', { name: 'Send' }),
    stop: chat.getByRole('button', { name: 'Stop' }),
    answers: chat.getByRole('article', { name: 'Answer' }),
    problem: chat.getByRole('alert'),
    note: chat.locator('.log .note'),
    button: (name: string | RegExp): Locator => chat.getByRole('button', { name }),
    /** Asks as a person types. */
    ask: async (text: string): Promise<void> => {
      const field = chat.getByRole('textbox', { name: 'Message' });
      await field.fill(text);
      await field.press('Enter');
    },
  };
};
