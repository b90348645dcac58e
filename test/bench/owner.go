package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// working in the environment has this program do the owner's work for so long, and tell how many megabytes a second it has hashed.
const working = "KITH_BENCH_WORKS"

func works(long string) error {
	d, err := time.ParseDuration(long)
	if err != nil {
		return err
	}
	began := time.Now()
	var blocks atomic.Int64
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			block := make([]byte, 1<<16)
			for time.Since(began) < d {
				sum := sha256.Sum256(block)
				copy(block, sum[:])
				blocks.Add(1)
			}
		})
	}
	all.Wait()
	fmt.Println(float64(blocks.Load()) * (1 << 16) / 1e6 / time.Since(began).Seconds())
	return nil
}

// The owner's work is in a cgroup as a desktop's programs are in, which systemd gives no weight.
const work = `
for cpu in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpuacct /sys/fs/cgroup; do
  [ ! -d "$cpu" ] || { mkdir -p "$cpu/user.slice" && echo $$ > "$cpu/user.slice/cgroup.procs"; } || exit
  [ ! -d "$cpu" ] || [ "$cpu" = /sys/fs/cgroup/cpu ] || break
done
exec "$1"
`

// uses tells what CPU time the owner's work and guests had, in microseconds.
const uses = `
for group in user.slice kubepods-guests; do
  if [ -d /sys/fs/cgroup/cpuacct ]; then
    [ ! -d /sys/fs/cgroup/cpuacct/$group ] && echo 0 || echo $(($(cat /sys/fs/cgroup/cpuacct/$group/cpuacct.usage) / 1000))
  else
    [ ! -d /sys/fs/cgroup/$group ] && echo 0 || sed -n 's/^usage_usec //p' /sys/fs/cgroup/$group/cpu.stat
  fi
done
`

// weigh has guests weigh as much as Kubernetes has its pods weigh (the first argument: 0) or what Kith gives them (1).
const weigh = `
if [ -d /sys/fs/cgroup/cpu ]; then
  cd /sys/fs/cgroup/cpu/kubepods-guests && echo $1 > cpu.idle && { [ $1 = 1 ] || cat ../kubepods/cpu.shares > cpu.shares; }
else
  cd /sys/fs/cgroup/kubepods-guests && echo $1 > cpu.idle && { [ $1 = 1 ] || cat ../kubepods/cpu.weight > cpu.weight; }
fi
`

// owner has bob's owner work while nobody else does, while guests burn all that they get, and while the same guests weigh what pods of Kubernetes do,
// by turns. A machine that a lab is on may do other things, too: so beside the rate it tells whose the CPU time was that bob had.
func owner(ctx context.Context, r *rig) error {
	const name = "burns"
	burn := container("burn", "kith.dev/echo:1", "burn", strconv.Itoa(2*runtime.NumCPU()))
	for range max(3, r.rounds/2) {
		alone, err := r.owners(ctx)
		if err != nil {
			return err
		}
		if err := r.start(ctx, r.alice, namespace, pod(name, abroad, burn)); err != nil {
			return err
		}
		beside, err := r.owners(ctx)
		if err != nil {
			return err
		}
		if _, _, err := r.bob.Exec(ctx, "sh", "-c", weigh, "weigh", "0"); err != nil {
			return err
		}
		equal, err := r.owners(ctx)
		if _, _, back := r.bob.Exec(context.WithoutCancel(ctx), "sh", "-c", weigh, "weigh", "1"); errors.Join(err, back) != nil {
			return errors.Join(err, back)
		}
		r.remove(ctx, r.alice, namespace, name)
		r.report.Pair("work of the owner", "MB/s", "with guests that burn", beside.rate, "without", alone.rate)
		r.report.Pair("work of the owner", "MB/s", "with guests that weigh what pods do", equal.rate, "without", alone.rate)
		r.report.Add("CPU time of guests while the owner works", "%", beside.guests)
		r.report.Add("CPU time of guests that weigh what pods do while the owner works", "%", equal.guests)
	}
	return nil
}

// worked is how fast the owner's work went, and how much of the CPU time that it and guests had was guests', in per cent.
type worked struct{ rate, guests float64 }

func (r *rig) owners(ctx context.Context) (w worked, err error) {
	used := func() (of [2]float64, err error) {
		out, _, err := r.bob.Exec(ctx, "sh", "-c", uses)
		if err == nil {
			_, err = fmt.Sscan(out, &of[0], &of[1])
		}
		return of, err
	}
	before, err := used()
	if err != nil {
		return w, err
	}
	self, err := os.Executable()
	if err != nil {
		return w, err
	}
	out, _, err := r.bob.Exec(ctx, "env", working+"=10s", "sh", "-c", work, "work", self)
	if err != nil {
		return w, err
	}
	after, err := used()
	if err != nil {
		return w, err
	}
	own, guests := after[0]-before[0], after[1]-before[1]
	w.guests = 100 * guests / (own + guests)
	w.rate, err = strconv.ParseFloat(strings.TrimSpace(out), 64)
	return w, err
}
