package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

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
