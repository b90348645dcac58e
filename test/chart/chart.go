// Package chart puts Kith into a cluster of the lab as an owner would: by its image and its Helm chart, with Helm running on a machine of the cluster.
// Tests and benchmarks use it. It changes the cluster of that machine and nothing else.
package chart

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"kith.dev/test/lab"
)

// Namespace is where Kith is installed.
const Namespace = "kith-system"

// Tag is that of the image.
const Tag = "0.0.0-lab"

const there = "/var/lib/chart" // on the machine

// Image makes the image of the programs as they were built, and gives its archive. root is the folder of the sources.
func Image(ctx context.Context, root string) (archive string, err error) {
	c := exec.CommandContext(ctx, filepath.Join(root, "scripts/image.sh"), runtime.GOARCH)
	c.Env = append(os.Environ(), "NO_BUILD=1", "NO_CHART=1", "VERSION="+Tag)
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make the image: %w: %s", err, out)
	}
	return filepath.Join(root, "build/kith-image.tar"), nil
}

// Carry puts Helm and the chart where the machine finds them.
func Carry(ctx context.Context, root string, at *lab.Laptop) error {
	helm, err := exec.CommandContext(ctx, filepath.Join(root, "scripts/helm.sh")).Output()
	if err != nil {
		return fmt.Errorf("build Helm: %w", err)
	}
	dir := at.Path(there)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	from, err := os.Open(strings.TrimSpace(string(helm)))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "helm"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if closed := to.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(dir, "kith"), os.DirFS(filepath.Join(root, "packaging/chart/kith")))
}

// Helm runs Helm at a machine to which it was carried.
func Helm(ctx context.Context, at *lab.Laptop, args ...string) (string, error) {
	out, stderr, err := at.Exec(ctx, append([]string{there + "/helm", "--namespace", Namespace}, args...)...)
	if err != nil {
		return out, fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr)
	}
	return out, nil
}

// Values are the arguments of Helm's install and upgrade behind their name: the release, the chart, and values for a cluster of the lab.
func Values(more ...string) []string {
	list := []string{"kith", there + "/kith"}
	for _, v := range append([]string{"podRange=10.42.0.0/16", "serviceRange=10.43.0.0/16", "image.tag=" + Tag, "clusterName=corp", "discovery.lan=true", "leaseDuration=6s"}, more...) {
		list = append(list, "--set", v)
	}
	return list
}

// Install makes the namespace and installs the chart.
func Install(ctx context.Context, at *lab.Laptop, values ...string) error {
	for _, args := range [][]string{{"create", "namespace", Namespace}, {"label", "namespace", Namespace, "pod-security.kubernetes.io/enforce=privileged"}} {
		if out, err := at.Kubectl(ctx, args...); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	_, err := Helm(ctx, at, append([]string{"install"}, Values(values...)...)...)
	return err
}

// Leader gives the pod of the kithd that works, and its node; empty while there is none that is ready, or are two.
func Leader(ctx context.Context, at *lab.Laptop) (pod, node string) {
	out, err := at.Kubectl(ctx, "-n", Namespace, "get", "pods", "-l", "kith.dev/leader=true", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	f := strings.Fields(lines[0])
	if err != nil || len(lines) != 1 || len(f) != 3 || f[2] != "True" {
		return "", ""
	}
	return f[0], f[1]
}
