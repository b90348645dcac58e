package login

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/ebitengine/purego/objc"

	"kith.dev/core/base/places"
)

// EXPERIMENTAL: this is built, and never ran on a Mac.

// Here gives kithd and the tray as services of the Kith.app that this program is in; none when it is in none, as a program of a source tree.
func Here() ([]Service, error) {
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return nil, fmt.Errorf("find Kith.app: %w", err)
	}
	home, _ := os.UserHomeDir()
	switch app, stays := Bundle(program, home); {
	case app == "":
		return nil, nil
	case !stays:
		return nil, fmt.Errorf("%s cannot be started at login from there: move it to Applications, and open it there", app)
	}
	if _, err := purego.Dlopen("/System/Library/Frameworks/ServiceManagement.framework/ServiceManagement", purego.RTLD_GLOBAL|purego.RTLD_NOW); err != nil {
		return nil, fmt.Errorf("load ServiceManagement: %w", err)
	}
	class := objc.ID(objc.GetClass("SMAppService"))
	if class == 0 {
		return nil, errors.New("this macOS has no SMAppService: Kith needs macOS 13 or later")
	}
	var list []Service
	pooled(func() {
		list = []Service{
			&service{"kithd", class.Send(selector("agentServiceWithPlistName:"), text(places.Label+".plist")).Send(selector("retain"))},
			&service{"the tray", class.Send(selector("mainAppService")).Send(selector("retain"))},
		}
	})
	return list, nil
}

// service is an SMAppService.
type service struct {
	name   string
	object objc.ID
}

// Name implements Service.
func (s *service) Name() string { return s.name }

// Status implements Service.
func (s *service) Status() (out Status) {
	pooled(func() { out = Status(objc.Send[int](s.object, selector("status"))) })
	return out
}

// Register implements Service.
func (s *service) Register() error { return s.call("registerAndReturnError:") }

// Unregister implements Service.
func (s *service) Unregister() error { return s.call("unregisterAndReturnError:") }

// call calls a method that takes the place of an NSError and gives whether it did what it is for.
func (s *service) call(method string) (err error) {
	pooled(func() {
		var why objc.ID
		if objc.Send[bool](s.object, selector(method), unsafe.Pointer(&why)) {
			return
		}
		if why == 0 {
			err = errors.New("macOS does not say why not")
			return
		}
		err = errors.New(objc.Send[string](why.Send(selector("localizedDescription")), selector("UTF8String")))
	})
	return err
}

func selector(name string) objc.SEL { return objc.RegisterName(name) }

func text(s string) objc.ID {
	return objc.ID(objc.GetClass("NSString")).Send(selector("stringWithUTF8String:"), s)
}

// pooled runs f on one thread with a pool for what the system's objects leave behind.
func pooled(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pool := objc.ID(objc.GetClass("NSAutoreleasePool")).Send(selector("new"))
	defer pool.Send(selector("drain"))
	f()
}
