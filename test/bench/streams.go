package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"kith.dev/test/bench/plain"
)

// manyStreams is how many streams share a tunnel here.
const manyStreams = 8

// streams sends on one connection, on eight and by UDP from a pod to a pod abroad, and by turns the same between two pods of a plain
// wireguard-go.
func streams(ctx context.Context, r *rig) error {
	away, err := r.pairOfPods(ctx)
	if err != nil {
		return err
	}
	defer r.removePods(ctx)
	dir, err := os.MkdirTemp("", "kith-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bare, err := plain.New(ctx, dir)
	if err != nil {
		return fmt.Errorf("plain wireguard-go: %w", err)
	}
	defer bare.Close()
	for i := range max(4, r.rounds/2) {
		got := map[turn]sent{}
		for k := range turns {
			t := turns[(i+k)%len(turns)]
			if got[t], err = r.takeTurn(ctx, t, away, bare, i == 0); err != nil {
				return err
			}
		}
		for _, n := range []int{1, manyStreams} {
			ours, theirs := got[turn{true, n}], got[turn{false, n}]
			r.report.Pair("TCP, pod to pod, "+streamsWord(n), "Mbit/s", "tunnel", ours.MBits, "wireguard-go", theirs.MBits)
			r.report.Pair("CPU time for a gigabyte, "+streamsWord(n), "s", "tunnel", ours.seconds, "wireguard-go", theirs.seconds)
			r.report.Pair("answers meanwhile, "+streamsWord(n)+", median", "ms", "tunnel", ours.P50, "wireguard-go", theirs.P50)
			r.report.Pair("answers meanwhile, "+streamsWord(n)+", 99th percentile", "ms", "tunnel", ours.P99, "wireguard-go", theirs.P99)
		}
		ours, theirs := got[turn{true, 0}], got[turn{false, 0}]
		r.report.Pair("UDP, pod to pod", "Mbit/s", "tunnel", ours.MBits, "wireguard-go", theirs.MBits)
		r.report.Pair("CPU time for a gigabyte, UDP", "s", "tunnel", ours.seconds, "wireguard-go", theirs.seconds)
		r.report.Ratio("TCP, pod to pod, tunnel, eight streams / one", "Mbit/s", got[turn{true, manyStreams}].MBits/got[turn{true, 1}].MBits)
		r.report.Ratio("TCP, pod to pod, wireguard-go, eight streams / one", "Mbit/s", got[turn{false, manyStreams}].MBits/got[turn{false, 1}].MBits)
	}
	pause(ctx, 2*time.Minute)
	after, err := r.usage()
	for _, p := range programs[:2] {
		r.report.Add("memory, two minutes after streams, "+p.role+": kithd", "MB", after[p].rss)
	}
	return err
}

func streamsWord(n int) string {
	switch n {
	case 0:
		return "UDP"
	case 1:
		return "one stream"
	}
	return "eight streams"
}

// loadArgs is how load sends on so many connections; 0: by UDP.
func loadArgs(streams int) []string {
	if streams == 0 {
		return []string{"datagrams", "-duration", "4s"}
	}
	return []string{"blast", "-duration", "4s", "-streams", fmt.Sprint(streams)}
}

// turn is one of the ways that take turns.
type turn struct {
	kith    bool
	streams int // 0: by UDP
}

var turns = []turn{{true, 1}, {false, 1}, {true, manyStreams}, {false, manyStreams}, {true, 0}, {false, 0}}

// sent is what load blast and load datagrams report.
type sent struct {
	MBits  float64 `json:"mbitPerSecond"`
	P50    float64 `json:"p50ms"`
	P99    float64 `json:"p99ms"`
	Bytes  float64
	Broken string

	seconds float64 // CPU time of both ends of the tunnel for a gigabyte
}

// takeTurn has one way its turn. Of the tunnel it also tells what both kithd take for it.
func (r *rig) takeTurn(ctx context.Context, t turn, away string, bare *plain.Tunnel, first bool) (s sent, err error) {
	args := loadArgs(t.streams)
	if !t.kith {
		before := secondsOf(bare.Processes)
		if err := bare.Send(ctx, &s, args...); err != nil || s.Broken != "" {
			return s, fmt.Errorf("wireguard-go, %s: %s %w", streamsWord(t.streams), s.Broken, err)
		}
		s.seconds = (secondsOf(bare.Processes) - before) / s.Bytes * 1e9
		return s, nil
	}
	if first {
		go r.profile(ctx, streamsWord(t.streams), "profile?seconds=3")
	}
	before, err := r.kithdSeconds()
	if err != nil {
		return s, err
	}
	if err := r.load(ctx, &s, append(args, away+":7000")...); err != nil || s.Broken != "" {
		return s, fmt.Errorf("tunnel, %s: %s %w", streamsWord(t.streams), s.Broken, err)
	}
	after, err := r.usage()
	for _, p := range programs[:2] {
		r.report.Add("memory under "+streamsWord(t.streams)+", "+p.role+": kithd", "MB", after[p].rss)
	}
	s.seconds = (after[program{"consumer", "kithd"}].cpu + after[program{"provider", "kithd"}].cpu - before) / s.Bytes * 1e9
	return s, err
}
