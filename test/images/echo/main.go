// Command echo is the program of image kith.dev/echo:1. As a server it tells who it is and whom it sees, fetches, dials
// and stores on request, so that a test can look at the network and the file system from inside a pod. Called with
// a subcommand, or by the name of one (/bin/tar, /bin/cat), it is the few tools a test wants to exec.
package main

import (
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tools are the subcommands; each gets its arguments without its own name.
var tools = map[string]func(args []string) error{
	"serve":  serve,
	"api":    api,
	"get":    get,
	"post":   post,
	"sha256": hashURL,
	"dial":   dial,
	"lookup": lookup,
	"cat":    cat,
	"ls":     ls,
	"echo":   echo,
	"env":    env,
	"sleep":  sleep,
	"exit":   exit,
	"fill":   fill,
	"write":  writeFile,
	"id":     id,
	"tar":    tarTool,

	"tries":   tries,
	"reverse": reverse,

	"sweep":     sweep,
	"addresses": addresses,

	"burn":    burn,
	"threads": threads,
	"spill":   spill,
	"pair":    pair,
	"flood":   flood,
	"ping":    ping,
	"raw":     raw,
}

func main() {
	log.SetFlags(0)
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if tools[name] == nil { // called as /app
		name = "serve"
		if len(args) > 0 {
			name, args = args[0], args[1:]
		}
	}
	tool := tools[name]
	if tool == nil {
		log.Printf("%s: unknown command; there are %s", name, strings.Join(slices.Sorted(maps.Keys(tools)), ", "))
		os.Exit(127)
	}
	if err := tool(args); err != nil {
		log.Printf("%s: %v", name, err)
		os.Exit(1)
	}
}
