// Command load is the program of image kith.dev/load:1: it makes load and measures it. `load http` sends requests at
// a steady rate and reports latencies; `load stream` keeps one TCP connection open and reports the longest gap in it;
// `load blast` sends as fast as it can, on one connection or several, `load datagrams` by UDP; `load serve` is the other end of these; `load redis`
// writes to whoever Sentinel says is the primary, and says what was lost. Reports are one JSON object, at the end or on SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const use = `use:
  load http   [-rate 50] [-duration 10s] [-timeout 5s] URL
  load stream [-duration 10s] ADDR     (receives a tick every 10 ms from load serve)
  load blast  [-duration 10s] [-streams 1] ADDR   (sends to load serve as fast as it can)
  load datagrams [-duration 10s] ADDR             (sends UDP to load serve, as fast as that takes it)
  load serve  [-listen :7000]
  load redis  [-rate 50] [-duration 10s] [-timeout 2s] NAME@SENTINEL     (password: $REDISCLI_AUTH)`

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal(use)
	}
	f := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	f.Usage = func() { log.Print(use) }
	rate := f.Float64("rate", 50, "requests a second")
	duration := f.Duration("duration", 10*time.Second, "how long")
	timeout := f.Duration("timeout", 5*time.Second, "of one request")
	streams := f.Int("streams", 1, "connections to send on")
	listen := f.String("listen", ":7000", "address")
	_ = f.Parse(os.Args[2:])

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if os.Args[1] == "serve" {
		exit(serve(ctx, *listen))
	}
	if f.NArg() != 1 {
		log.Fatal(use)
	}
	ctx, cancel := context.WithTimeout(ctx, *duration)
	defer cancel()
	var report any
	var err error
	switch os.Args[1] {
	case "http":
		report, err = requests(ctx, f.Arg(0), *rate, *timeout)
	case "stream":
		report, err = stream(ctx, f.Arg(0))
	case "redis":
		name, sentinel, _ := strings.Cut(f.Arg(0), "@")
		host, _ := os.Hostname()
		report, err = writes(ctx, host, &redis{sentinel: sentinel, name: name, password: os.Getenv("REDISCLI_AUTH"), timeout: *timeout}, *rate)
	case "datagrams":
		report, err = datagrams(ctx, f.Arg(0))
	case "blast":
		report, err = blast(ctx, f.Arg(0), *streams)
	default:
		log.Fatal(use)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
