// @ts-check
// Starts the page on the server it came from.
import {start} from "./main.js";
import {FetchSource} from "./data/source.js";

start(new FetchSource());
