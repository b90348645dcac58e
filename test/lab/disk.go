package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// A laptop's disk, and where the laptop sees its parts (see pid1/mounts.go):
//
//	lib   /var/lib
//	log   /var/log
//	tmp   /tmp, /var/tmp
//	over  changes to /etc, /usr, /opt and /root, which are the machine's otherwise
const imagesDir = "lib/kith/k8s/images"

// K3s is the engine of a laptop that has K3s.
const K3s = "k3s"

// K3sBinary is where such a laptop has it, as K3s' installer puts it.
const K3sBinary = "/usr/local/bin/k3s"

// installK3s puts K3s onto a disk, or kith-k8s, which stands in for it. The administrator's kubeconfig is found where that of the built-in
// Kubernetes would be.
func (p *Laptop) installK3s(disk string) error {
	program := os.Getenv("KITH_K3S")
	if program == "" {
		program = filepath.Join(p.lab.bin, "kith-k8s")
	}
	at := filepath.Join(disk, "over/usr/upper/local/bin")
	return errors.Join(os.MkdirAll(at, 0o755), os.Symlink(program, filepath.Join(at, filepath.Base(K3sBinary))),
		os.Symlink("../k3s/admin.kubeconfig", filepath.Join(disk, strings.TrimPrefix(Kubeconfig, "/var/"))))
}

// installDisk makes a new laptop's disk: what an installer of an operating system and of Kith would leave there.
// A disk that exists is kept.
func (p *Laptop) installDisk(o Options) error {
	if _, err := os.Stat(p.disk); err == nil {
		return nil
	}
	// Built beside and renamed, so that a disk is whole or not there.
	d := p.disk + ".new"
	if err := os.RemoveAll(d); err != nil {
		return fmt.Errorf("make disk of %s: %w", p.name, err)
	}
	for _, dir := range []string{"lib", "log", imagesDir, "lib/kith"} {
		if err := os.MkdirAll(filepath.Join(d, dir), 0o755); err != nil {
			return fmt.Errorf("make disk of %s: %w", p.name, err)
		}
	}
	for _, dir := range []string{"etc", "usr", "opt", "root"} {
		for _, part := range []string{"upper", "work"} {
			if err := os.MkdirAll(filepath.Join(d, "over", dir, part), 0o755); err != nil {
				return fmt.Errorf("make disk of %s: %w", p.name, err)
			}
		}
	}
	tmp := filepath.Join(d, "tmp")
	if err := errors.Join(os.Mkdir(tmp, 0o755), os.Chmod(tmp, os.ModeSticky|0o777), os.Chmod(filepath.Join(d, "over/root/upper"), 0o700)); err != nil {
		return fmt.Errorf("make disk of %s: %w", p.name, err)
	}
	if err := p.writeEtc(filepath.Join(d, "over/etc/upper"), o); err != nil {
		return fmt.Errorf("make disk of %s: %w", p.name, err)
	}
	if o.Engines[p.name] == K3s {
		if err := p.installK3s(d); err != nil {
			return fmt.Errorf("make disk of %s: put K3s: %w", p.name, err)
		}
	}
	for _, tar := range o.Images {
		if err := linkOrCopy(tar, filepath.Join(d, imagesDir, filepath.Base(tar))); err != nil {
			return fmt.Errorf("make disk of %s: put image: %w", p.name, err)
		}
	}
	return os.Rename(d, p.disk)
}

// writeEtc writes the laptop's own files of /etc.
func (p *Laptop) writeEtc(etc string, o Options) error {
	// Nothing of the machine's own Kith or CNI may shine through.
	for _, dir := range []string{"kith", "cni", "rancher"} {
		path := filepath.Join(etc, dir)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		if err := unix.Setxattr(path, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return fmt.Errorf("hide the machine's /etc/%s: %w", dir, err)
		}
	}
	// The images of a lab come without a registry: guests may use them as they are.
	config := map[string]any{"name": p.name, "engine": "builtin", "guestImages": []string{"kith.dev/*"}}
	if o.Engines[p.name] == K3s {
		config["engine"], config["k3sBinary"], config["imagesDir"] = K3s, K3sBinary, "/var/"+imagesDir
	}
	if o.NoEngine {
		config["engine"] = "none"
		delete(config, "guestImages")
	}
	maps.Copy(config, o.Config)
	yml, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	group, err := os.ReadFile("/etc/group")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	id := sha256.Sum256([]byte(p.lab.name + "/" + p.name))
	for name, text := range map[string]string{
		"kith/config.yaml": string(yml),
		"hostname":         p.name + "\n",
		"hosts":            "127.0.0.1\tlocalhost\n127.0.1.1\t" + p.name + "\n::1\tlocalhost ip6-localhost ip6-loopback\n",
		// The LAN's router answers no DNS, and says so at once (port unreachable).
		"resolv.conf": "nameserver " + p.lab.family.address(router).String() + "\n",
		"group":       withGroup(string(group), "kith"),
		"machine-id":  hex.EncodeToString(id[:16]) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withGroup adds a group to a group(5) file that lacks it, under the first free system number from 900 down.
func withGroup(file, name string) string {
	if strings.HasPrefix(file, name+":") || strings.Contains(file, "\n"+name+":") {
		return file
	}
	gid := 900
	for strings.Contains(file, fmt.Sprintf(":%d:", gid)) {
		gid--
	}
	if file != "" && !strings.HasSuffix(file, "\n") {
		file += "\n"
	}
	return file + fmt.Sprintf("%s:x:%d:\n", name, gid)
}

// ContainerdSocket is the built-in engine's containerd inside a laptop.
const ContainerdSocket = "/run/kith/k8s/containerd/containerd.sock"

// ImportImage imports an image archive (docker or OCI layout, tar) into the laptop's containerd. When that does not run
// yet, the archive is left where the engine finds it at its start.
func (p *Laptop) ImportImage(ctx context.Context, tar string) error {
	f, err := os.Open(tar)
	if err != nil {
		return fmt.Errorf("import image: %w", err)
	}
	defer f.Close()
	if _, err := os.Stat(p.Path(ContainerdSocket)); err != nil {
		if _, err := p.record(); err != nil {
			return err
		}
		return linkOrCopy(tar, filepath.Join(p.disk, imagesDir, filepath.Base(tar)))
	}
	_, _, err = p.ExecInput(ctx, f, "ctr", "--address", ContainerdSocket, "-n", "k8s.io", "images", "import", "-")
	return err
}

// linkOrCopy spares the space when both are on one file system.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
