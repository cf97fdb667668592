// The build: one page, files with a hash of their content in their names, and the licences of what is included.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";

/** `licenses.txt`: the licence of every library whose code is in the built files. */
function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle(_, bundle) {
      const used = new Set<string>();
      for (const file of Object.values(bundle)) {
        for (const id of file.type === "chunk" ? file.moduleIds : []) {
          const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id);
          if (found?.[1]) used.add(found[1]);
        }
      }
      used.add("uplot"); // its style sheet, too
      const texts = [...used].sort().map((name) => {
        const folder = join("node_modules", name);
        const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
        const text = file ? readFileSync(join(folder, file), "utf8").trim() : "";
        return `${name} ${version} (${license})\n\n${text}\n`;
      });
      this.emitFile({ type: "asset", fileName: "licenses.txt", source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [licenses()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/aenv/web/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { input: { index: "index.html", mini_program: "mini_program.html" } },
  },
});
