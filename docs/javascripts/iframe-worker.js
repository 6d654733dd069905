// Pages that are read from the disk may not start a worker, which the search needs. There, a hidden frame is one.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(script) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.importScripts = () => Promise.reject(new Error("only the search in English works from the disk"))
      this.ready = new Promise((resolve, reject) => {
        const tag = Object.assign(this.inside.document.createElement("script"), { src: script })
        tag.onload = resolve
        tag.onerror = () => reject(new Error(`cannot load ${script}`))
        this.inside.document.body.append(tag)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })))
    }

    terminate() {
      this.inside.frameElement.remove()
    }
  }
