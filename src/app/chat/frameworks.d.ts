// `<splitkv-chat>` in the templates of frameworks: the build writes this file at the end of splitkv-chat.d.ts. Where a framework isn't
// installed its part means nothing, which TypeScript would call an error.
import type { SplitkvChat } from './element.js';
import type { ChatAttributes, ChatPropertyValues, SplitkvChatEventMap } from './properties.js';

/** 'splitkv-answer' → 'splitkvAnswer'. */
type CamelCase<Name extends string> = Name extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name;
type TemplateProps = ChatAttributes & ChatPropertyValues;
type TemplateEvents<Prefix extends string> = {
  [Name in keyof SplitkvChatEventMap as `${Prefix}${Name}`]?: (event: SplitkvChatEventMap[Name]) => void;
};
type VueEvents = {
  [Name in keyof SplitkvChatEventMap as `on${Capitalize<CamelCase<Name>>}`]?: (
    event: SplitkvChatEventMap[Name],
  ) => void;
};
/** `Html`: what the framework takes for any element. */
type TemplateElement<Html, Prefix extends string> = Omit<Html, keyof TemplateProps> &
  TemplateProps &
  TemplateEvents<Prefix>;

// @ts-ignore
declare module 'react' {
  namespace JSX {
    interface IntrinsicElements {
      // @ts-ignore
      'splitkv-chat': TemplateElement<DetailedHTMLProps<HTMLAttributes<SplitkvChat>, SplitkvChat>, 'on'>;
    }
  }
}
// @ts-ignore
declare module 'preact' {
  namespace JSX {
    interface IntrinsicElements {
      // @ts-ignore
      'splitkv-chat': TemplateElement<HTMLAttributes<SplitkvChat>, 'on'>;
    }
  }
}
// @ts-ignore
declare module 'vue' {
  interface GlobalComponents {
    // @ts-ignore
    'splitkv-chat': new () => { readonly $props: TemplateElement<HTMLAttributes, 'on'> & VueEvents };
  }
}
// @ts-ignore
declare module 'svelte/elements' {
  interface SvelteHTMLElements {
    // @ts-ignore
    'splitkv-chat': TemplateElement<HTMLAttributes<SplitkvChat>, 'on'> & TemplateEvents<'on:'>;
  }
}
