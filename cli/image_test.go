package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestImages(t *testing.T) {
	k := serve(t, world())
	file := filepath.Join(t.TempDir(), "web.tar")
	if err := os.WriteFile(file, []byte("an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, code := k.run("image", "load", file, "--name", "docker.io/shop/web:dev", "-o", "name")
	if code != 0 || out != "shop/web:dev\n" {
		t.Errorf("load: %d %q", code, out)
	}
	if out, _, code := k.run("image", "ls", "shop/web:dev", "-o", "name"); code != 0 || out != "shop/web:dev\n" {
		t.Errorf("ls: %d %q", code, out)
	}
	if _, errs, code := k.run("image", "ls", "nothing"); code == 0 || !strings.Contains(errs, "nothing") {
		t.Errorf("ls nothing: %d %q", code, errs)
	}
	if _, errs, code := k.run("image", "load", filepath.Join(t.TempDir(), "none")); code == 0 || !strings.Contains(errs, "no file and no image") {
		t.Errorf("load of no file: %d %q", code, errs)
	}
	if _, errs, code := k.run("image", "load", "-"); code == 0 || !strings.Contains(errs, "it is empty") {
		t.Errorf("load of nothing: %d %q", code, errs)
	}
	if out, _, code := k.run("image", "rm", "docker.io/shop/web:dev"); code != 0 || out != "removed docker.io/shop/web:dev\n" {
		t.Errorf("rm: %d %q", code, out)
	}
	if _, errs, code := k.run("image", "rm", "docker.io/shop/web:dev"); code == 0 || !strings.Contains(errs, "`kith image ls`") {
		t.Errorf("rm again: %d %q", code, errs)
	}
}

// TestKubectlIsGivenTheKubeconfig: the user's own kubectl, all of its arguments, its exit code; and nothing is left.
func TestKubectlIsGivenTheKubeconfig(t *testing.T) {
	k := serve(t, world())
	bin, run := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\nprintf '%s\\n' \"$*\"; grep -c . \"$KUBECONFIG\"; echo sad >&2; exit 7\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("KUBECONFIG", "/elsewhere")
	k.env = map[string]string{"XDG_RUNTIME_DIR": run}
	out, errs, code := k.run("kubectl", "-n", "shop", "apply", "-f", ".", "--socket", "x", "--help")
	if code != 7 || !strings.HasPrefix(out, "-n shop apply -f . --socket x --help\n") || strings.HasSuffix(out, "\n0\n") || errs != "sad\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	k.env["SHELL"] = filepath.Join(bin, "kubectl")
	if out, errs, code := k.run("shell"); code != 7 || strings.HasSuffix(out, "\n0\n") || errs != "sad\n" {
		t.Errorf("shell: %d %q %q", code, out, errs)
	}
	if left, err := os.ReadDir(run); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestImagesOfOtherStores: a name that is no file is looked for where images are built.
func TestImagesOfOtherStores(t *testing.T) {
	k := serve(t, world())
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	store := func(name, images, save string) {
		script := "#!/bin/sh\n[ \"$1 $3\" != \"image --\" ] || for i in " + images + "; do [ \"$i\" != \"$4\" ] || exit 0; done\n[ \"$1\" = save ] || exit 1\n" + save + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, errs, code := k.run("image", "load", "shop/web:dev")
	if code == 0 || !strings.Contains(errs, "none of docker, podman, nerdctl is installed") {
		t.Errorf("without any: %d %q", code, errs)
	}
	store("docker", "shop/web:dev both:1 bad:1", `[ "$3" != bad:1 ] || { echo "no space" >&2; exit 1; }; printf 'an archive'`)
	store("podman", "both:1", "printf another")
	for _, c := range []struct{ args, out, errs string }{
		{"shop/web:dev", "shop/web:dev", ""},
		{"shop/web:dev --name other:1", "other:1", ""},
		{"shop/web:dev --from podman", "", "podman has no such image"},
		{"both:1", "", "docker and podman have an image"},
		{"both:1 --from podman", "both:1", ""},
		{"none:1", "", "docker and podman has no such image"},
		{"bad:1", "", "docker does not give the image: no space"},
		{"both:1 --from crio", "", `no store called "crio"`},
	} {
		out, errs, code := k.run(append(strings.Fields("image load "+c.args), "-o", "name")...)
		if (code == 0) != (c.errs == "") || strings.TrimSpace(out) != c.out || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: %d %q %q", c.args, code, out, errs)
		}
	}
}
