package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kith.dev/test/bench/report"
)

// side is one of two builds: a tree with bin/ and build/bench, which has the labs and figures of its own time.
type side struct {
	dir    string
	report *report.Report
}

// against runs the groups of this build and of the one in another tree by turns, so that both meet the same moods of the machine: for each group
// other, this, this, other, and so on. A group or figure that only one of them has is not compared.
func against(ctx context.Context, o options) error {
	this, other := side{".", report.New()}, side{o.against, report.New()}
groups:
	for _, g := range groups {
		if len(o.only) > 0 && !slices.Contains(o.only, g.name) {
			continue
		}
		for turn := range o.turns {
			pair := []side{other, this}
			if turn%2 == 1 {
				slices.Reverse(pair)
			}
			for _, s := range pair {
				if err := s.run(ctx, g.name, o); err != nil {
					log.Printf("%s in %s: %v", g.name, s.dir, err)
					s.report.Failed = append(s.report.Failed, fmt.Sprintf("%s in %s: %v", g.name, s.dir, err))
				}
				if ctx.Err() != nil { // what was measured until then is told
					break groups
				}
			}
		}
	}
	this.report.Compare(other.report, filepath.Base(o.against))
	return errors.Join(this.report.Finish(slices.Concat(this.report.Failed, other.report.Failed), os.Stdout, o.out), this.report.Err())
}

// run runs one group and adds what it measured.
func (s side) run(ctx context.Context, group string, o options) error {
	dir, err := os.MkdirTemp("", "kith-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "bench.json")
	cmd := exec.CommandContext(ctx, filepath.Join("build", "bench"), "-lab", o.lab, "-only", group, "-rounds", strconv.Itoa(o.rounds), "-pods", strconv.Itoa(o.pods),
		"-fakes", strconv.Itoa(o.fakes), "-peers", strconv.Itoa(o.peers), "-idle", o.idle.String(), "-out", out)
	cmd.Dir, cmd.Stderr = s.dir, os.Stderr
	// It takes its lab down before it ends.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 2*time.Minute
	failed := cmd.Run()
	got, err := report.Read(out)
	if err != nil {
		return errors.Join(failed, err)
	}
	for i, f := range got.Failed {
		got.Failed[i] = strings.TrimSpace(f + " in " + s.dir)
	}
	s.report.Merge(got)
	return nil
}
