// Reads a profile with speedscope's own importer, taken out of its web page's script, and prints
// what it understood: node speedscope_reader.js NODE_MODULES/speedscope FILE
'use strict'
const fs = require('fs')
const path = require('path')
const vm = require('vm')

const [, , packageDirectory, file] = process.argv
const release = path.join(packageDirectory, 'dist', 'release')
const script = fs.readdirSync(release).find(name => /^speedscope-.*\.js$/.test(name))
const source = fs.readFileSync(path.join(release, script), 'utf8')
// The page offers its importer to a script beside it; that is the function we want.
const importer = /loadFileFromBase64:\(\w+,\w+\)=>\{this\.loadProfile\(\(\)=>([\w$]+)\(/.exec(source)
const mounting = source.lastIndexOf('console.log(`speedscope v')
if (!importer || mounting < 0) throw new Error('this speedscope is built in another way')
const cut = `${source.slice(0, mounting)}globalThis.importFromBase64=${importer[1]}})()`

const nothing = () => {}
const element = () => ({style: {}, appendChild: nothing, setAttribute: nothing, sheet: {}})
const page = {
  console: {log: nothing, warn: nothing, error: nothing},
  document: {createElement: element, head: element(), body: element(), addEventListener: nothing},
  location: {hash: '', protocol: 'file:', href: 'file:///'},
  navigator: {userAgent: ''}, localStorage: {}, matchMedia: () => ({addListener: nothing}),
  addEventListener: nothing, performance, setTimeout, TextDecoder, TextEncoder, atob, URL,
}
page.window = page.self = page
vm.runInNewContext(cut, page)

page.importFromBase64(path.basename(file), fs.readFileSync(file).toString('base64')).then(group => {
  const profiles = group.profiles.map(profile => {
    const stacks = {}
    const open = []
    let last = 0
    const spend = value => {
      if (value > last && open.length) {
        const key = open.join('\n')
        stacks[key] = (stacks[key] || 0) + (value - last)
      }
      last = value
    }
    profile.forEachCall(
      (node, value) => { spend(value); open.push(node.frame.name) },
      (node, value) => { spend(value); open.pop() },
    )
    return {
      name: profile.getName(), unit: profile.getWeightUnit(),
      total: profile.getTotalWeight(), stacks,
    }
  })
  process.stdout.write(JSON.stringify({name: group.name, profiles}))
}).catch(error => { console.error(String(error)); process.exit(1) })
