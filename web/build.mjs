/** Builds the bundle that the Python package carries, or (`node build.mjs test`) bundles the tests and runs them. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const bundle = resolve(here, "../src/pellucid/views/interactive/bundle.js");

/** The worker is bundled on its own and travels inside the bundle as a string, for it must start from a Blob URL. */
const inlineWorker = {
  name: "inline-worker",
  setup(build) {
    build.onResolve({ filter: /^inline-worker:/ }, (found) => ({
      path: join(found.resolveDir, found.path.replace("inline-worker:", "") + ".ts"),
      namespace: "inline-worker",
    }));
    build.onLoad({ filter: /.*/, namespace: "inline-worker" }, async (found) => {
      const built = await esbuild.build({ ...common, entryPoints: [found.path], format: "iife", write: false });
      return { contents: built.outputFiles[0].text.trim(), loader: "text", watchFiles: [found.path] };
    });
  },
};

const inlineStyle = {
  name: "inline-style",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async (found) => {
      const small = await esbuild.transform(readFileSync(found.path, "utf8"), { loader: "css", minify: true });
      return { contents: small.code.trim(), loader: "text" };
    });
  },
};

const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
};

async function buildBundle() {
  await esbuild.build({
    ...common,
    entryPoints: ["src/main.ts"],
    format: "esm",
    plugins: [inlineWorker, inlineStyle],
    banner: { js: "/* Built from web/ by `npm run build`; do not edit. */" },
    outfile: bundle,
  });
  console.log(`${bundle}: ${(statSync(bundle).size / 1000).toFixed(1)} kB`);
}

async function runTests() {
  const folder = mkdtempSync(join(tmpdir(), "pellucid-web-"));
  try {
    const tests = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
    await esbuild.build({
      ...common,
      minify: false,
      entryPoints: tests.map((name) => join("test", name)),
      platform: "node",
      format: "esm",
      plugins: [inlineWorker, inlineStyle],
      outExtension: { ".js": ".mjs" },
      outdir: folder,
    });
    const files = tests.map((name) => join(folder, name.replace(/\.ts$/, ".mjs")));
    process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

await (process.argv[2] === "test" ? runTests() : buildBundle());
